import sys
from pathlib import Path

# Shared helpers are plain modules beside the tests.
sys.path.append(str(Path(__file__).parent))
