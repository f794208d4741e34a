"""What the toolkit needs of the machine it runs on: devices and versions, files, somebody who watches the progress."""
