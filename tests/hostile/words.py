"""Hostile words of a command line: paths and numbers."""

# Paths that no data set, model or checkpoint has.
PATHS = (
    "/", "/proc/self", "/dev", "/dev/zero", "/dev/stdin", "/proc/self/mem", "/proc/self/fd", "~nobody",
    "~nosuchuser/a.npz", "~", "", " ", ".", "..", "a" * 300, "a/" * 3000, "b" * 5000 + ".npz", "nul\x00.npz",
    "a\nb.npz", "\x1b[2J.npz", "\udcff.npz",
    "file:///etc/passwd", "http://localhost/a.npz", "a.npz/b", "-", "--", "*", "%s%n", "$HOME", "con", "C:\\a.npz",
)  # fmt: skip

# Numbers that are no sensible count, radius or share.
NUMBERS = (
    "9" * 5000, "-" + "9" * 5000, "9" * 400, "1e99999999999", "1e-99999999999", "1/" + "9" * 4000, "1e400", "nan",
    "inf", "-inf",
    "-1", "0x10", "1_0", "٣", "²", "", " ", "1e5000/7", "0/0", "1/0", "--1", "2147483647", "2147483648",
    "9223372036854775808",
    "1e18", "NaN", "infinity", "1,5", "1.5.5",
)  # fmt: skip
