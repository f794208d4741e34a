"""Models in Hugging Face's form: a folder with `config.json` and safetensors, on the disk or on the hub."""
