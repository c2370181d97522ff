"""The settings of ``simco-export``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simco_methods.config.checks import each, one_of, optional
from simco_methods.encoder.settings import SourceSettings, check_folder
from simco_methods.files import user_path
from simco_methods.options import EXPORT_FORMATS, NAMINGS
from simco_methods.settings import setting


@dataclass
class ExportSettings(SourceSettings):
    """What ``simco-export ENCODER key=value ...`` takes.

    Attributes:
        format: one or several of safetensors (the default) and pth (weights), onnx, torchscript,
            pt2 (programs; pt2 is torch.export's), solo-learn (a folder for its main_linear.py and
            main_knn.py).
        naming: whose names the weights have: "torchvision" or "timm"; by default those of the
            library that the network is from. ResNets have the same names in both.
        out: folder to write to, by default ``export`` in the run's folder, or ``<file>-export``
            beside the file; or one file, whose ending says the format.
    """

    format: Any = setting(None, optional(each(one_of(*EXPORT_FORMATS))), listed=True, commas=True)
    naming: str | None = setting(None, optional(one_of(*NAMINGS)))

    def target(self, source: str) -> tuple[Path, str, list[str]]:
        """Folder, stem of the names, and formats.

        Args:
            source: what is exported.

        Raises:
            ValueError: a file to write whose ending is of another format; a naming where no format
                has weights to name; a folder that cannot be written to.
        """
        from simco_methods.encoder.formats import FORMATS

        formats = self.format or ["safetensors"]
        endings = {form.ending: name for name, form in FORMATS.items() if form.ending}
        out = user_path(self.out or "")
        if out.suffix not in endings or out.is_dir():
            self._check_naming(formats)
            return self.out_folder(source, "export"), "encoder", formats
        one = endings[out.suffix]
        if self.format not in (None, [one]):
            raise ValueError(
                f"out={out} is one file, of format {one}, but format={','.join(formats)}; name a "
                "folder"
            )
        self._check_naming([one])
        check_folder(out.parent)
        return out.parent, out.stem, [one]

    def _check_naming(self, formats: Sequence[str]) -> None:
        from simco_methods.encoder.formats import FORMATS

        if self.naming is not None and not any(FORMATS[name].plain for name in formats):
            named = ",".join(name for name, form in FORMATS.items() if form.plain)
            raise ValueError(
                f"naming={self.naming}: is of format={named}; format={','.join(formats)} has no "
                "names of a library's, leave it out"
            )
