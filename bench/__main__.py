"""``python -m bench``."""

import sys
import tempfile
from pathlib import Path

from bench.bytecode import keep_bytecode
from bench.cli import main

with tempfile.TemporaryDirectory(prefix="replog-bench-bytecode-", ignore_cleanup_errors=True) as directory:
    keep_bytecode(Path(directory))
    code = main(sys.argv[1:])
sys.exit(code)
