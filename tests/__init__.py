from pathlib import Path

FIGURES = Path(__file__).parent / "figures"
