"""simco-export: what is written, that it is whole, checked and described, and what is refused."""

import hashlib
import importlib.util
import json
import sys
import warnings

import numpy as np
import pytest
import torch

from simco_methods import export as command
from simco_methods import load_encoder
from simco_methods.encoder.formats import FORMATS, Onnx
from simco_methods.encoder.writing import export_encoder
from tests.encoder.conftest import encoder_of, export, pictures, same_weights
from tests.helpers import TINY_RESNET

needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="needs the extra onnx",
)
PROGRAMS = ["torchscript", "pt2", pytest.param("onnx", marks=needs_onnx)]


def card_of(folder, name="encoder"):
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def listing(folder):
    return sorted(path.name for path in folder.rglob("*"))


class TestWeights:
    def test_of_a_run(self, digits_run, tmp_path, capsys):
        folder = export(digits_run, f"out={tmp_path}/new/folder", "format=safetensors,pth")
        assert folder == tmp_path / "new" / "folder"
        assert listing(folder) == ["encoder.json", "encoder.pth", "encoder.safetensors"]
        trained = load_encoder(digits_run)
        expected = trained.transform(pictures(3))
        for source in (folder, folder / "encoder.pth", folder / "encoder.safetensors"):
            found = load_encoder(source)
            assert same_weights(found, trained)
            assert np.array_equal(found.transform(pictures(3)), expected)
            for fact in ("preprocessing", "method", "classes", "accuracies", "epochs", "versions"):
                assert getattr(found.card, fact) == getattr(trained.card, fact)
        said = capsys.readouterr().out
        for line in card_of(folder)["files"]["encoder.safetensors"]["load"]:
            assert f"{line}\n" in said
        assert "its features differ by at most 0 (the largest is" in said

    def test_the_card(self, digits_run, tmp_path):
        folder = export(digits_run, f"out={tmp_path}")
        text = (folder / "encoder.json").read_text(encoding="utf-8")
        card = json.loads(text)
        summary = json.loads((digits_run / "summary.json").read_text())
        assert (card["method"], card["dataset"], card["naming"]) == ("simco", "digits", "timm")
        assert card["classes"] == list("0123456789") and card["features"] == 16
        assert card["accuracies"]["val_acc1"] == summary["last_epoch"]["val_acc1"]
        assert card["versions"] == summary["versions"]
        assert card["settings"]["optimizer"]["batch_size"] == 16
        (name,) = card["files"]
        content = (folder / name).read_bytes()
        assert card["files"][name]["sha256"] == hashlib.sha256(content).hexdigest()
        assert card["files"][name]["bytes"] == len(content)
        assert not card["settings"].keys() & {"checkpoint", "wandb", "resume_from_checkpoint"}
        for place in (str(digits_run), str(digits_run.parent), "output_dir", "train_path"):
            assert place not in text and place.encode() not in content

    def test_again_and_again(self, digits_run, tmp_path):
        first = export(digits_run, f"out={tmp_path / 'first'}")
        second = export(first / "encoder.safetensors", "format=pth")
        assert second == first / "encoder-export"
        third = export(second, "format=safetensors", f"out={tmp_path / 'third'}")
        assert same_weights(load_encoder(third), load_encoder(digits_run))
        one, other = card_of(first), card_of(third)
        assert {**one, "files": None} == {**other, "files": None}

    def test_by_default_it_is_in_the_run_s_folder(self, digits_run):
        assert export(digits_run) == digits_run / "export"
        assert listing(digits_run / "export") == ["encoder.json", "encoder.safetensors"]

    def test_others_can_read_it(self, tmp_path):
        export_encoder(encoder_of(), tmp_path, "a", ["safetensors", "pth"], None)
        modes = [(tmp_path / name).stat().st_mode for name in ("a.safetensors", "a.pth", "a.json")]
        assert len(set(modes)) == 1

    def test_one_file(self, digits_run, tmp_path):
        folder = export(digits_run, f"out={tmp_path / 'my.pth'}")
        assert folder == tmp_path and listing(tmp_path) == ["my.json", "my.pth"]
        load = card_of(tmp_path, "my")["files"]["my.pth"]["load"]
        assert 'model.load_state_dict(torch.load("my.pth", weights_only=True))' in load
        with pytest.raises(ValueError, match="my.pth is one file, of format pth, but format=onnx"):
            export(digits_run, f"out={tmp_path / 'my.pth'}", "format=onnx,pth")

    def test_size_and_normalisation_that_were_set(self, digits_run, tmp_path):
        export(digits_run, f"out={tmp_path}", "size=20", "mean=[0.1,0.1,0.1]")
        seen = load_encoder(tmp_path).card.preprocessing
        assert (seen.size, seen.mean, seen.std) == (20, (0.1,) * 3, (0.376,) * 3)


class TestPrograms:
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_any_number_of_images(self, name, tmp_path, monkeypatch):
        encoder = encoder_of()
        (written,) = export_encoder(encoder, tmp_path, "net", [name], None)
        assert written.difference <= FORMATS[name].tolerance * written.scale
        monkeypatch.chdir(tmp_path)
        images = torch.randn(7, 3, 16, 16)
        made = {"images": images.numpy()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript has a successor
            exec("\n".join(written.load), made)
        found = made["model"](images).detach().numpy() if "model" in made else made["features"]
        with torch.no_grad():
            np.testing.assert_allclose(found, encoder(images).numpy(), rtol=1e-4, atol=1e-5)
        assert card_of(tmp_path, "net")["files"][written.path.name]["format"] == name

    @pytest.mark.slow
    @pytest.mark.parametrize("name", PROGRAMS)
    @pytest.mark.parametrize(
        "network, kwargs, stem",
        [
            ("resnet18", {}, True),
            ("vit_tiny", {"img_size": 32, "patch_size": 8}, False),
            ("swin_tiny", {"img_size": 32, "window_size": 4}, False),
            ("convnext_tiny", {}, False),
        ],
    )
    def test_of_other_networks(self, name, network, kwargs, stem, tmp_path):
        encoder = encoder_of(network, kwargs, stem, 32)
        (written,) = export_encoder(encoder, tmp_path, "net", [name], None)
        assert written.difference <= FORMATS[name].tolerance * written.scale

    def test_unchecked_without_onnxruntime(self, digits_run, tmp_path, capsys, monkeypatch):
        hide(monkeypatch, "onnxruntime")
        monkeypatch.setattr(Onnx, "check", lambda self, encoder=None: None)
        monkeypatch.setattr(Onnx, "write", lambda self, export, path: path.touch())
        export(digits_run, "format=onnx", f"out={tmp_path}")
        assert "not compared: onnxruntime is not installed" in capsys.readouterr().out

    @pytest.mark.parametrize("package", ["onnx", "onnxscript"])
    def test_onnx_needs_its_extra(self, package, tmp_path, monkeypatch):
        hide(monkeypatch, package)
        with pytest.raises(ImportError, match=rf"needs {package}: .*simco-methods\[onnx\]"):
            export(tmp_path / "nothing", "format=onnx")  # before anything is read


def hide(monkeypatch, package):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == package else find(name, *a)
    )


class Odd(torch.nn.Module):
    """A network whose features depend on how many images there are, which a trace cannot know."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, images):
        return self.net(images) * len(images)


class TestWholeOrNothing:
    def test_a_network_that_cannot_be_exported(self, tmp_path):
        encoder = encoder_of()
        encoder.backbone = Odd(encoder.backbone)
        with pytest.raises(ValueError) as error:
            export_encoder(encoder, tmp_path / "new", "a", ["torchscript"], None)
        assert "micro_resnet cannot be exported as torchscript: its features differ" in str(
            error.value
        )
        assert not (tmp_path / "new").exists()

    def test_an_error_of_the_exporter_is_one_line(self, tmp_path, monkeypatch):
        def fail(*args, **options):
            raise RuntimeError("no rule for aten::odd\nand a page of it")

        monkeypatch.setattr(torch.export, "export", fail)
        with pytest.raises(
            ValueError, match="^micro_resnet .* as pt2: .*aten::odd and a page of it$"
        ):
            export_encoder(encoder_of(), tmp_path, "a", ["safetensors", "pt2"], None)
        assert listing(tmp_path) == []

    def test_files_that_are_there_are_replaced_or_stay_whole(self, tmp_path, monkeypatch):
        first, second = encoder_of(), encoder_of(seed=1)
        export_encoder(first, tmp_path, "a", ["safetensors"], None)
        monkeypatch.setattr(torch.jit, "trace", None)
        with pytest.raises(ValueError, match="cannot be exported as torchscript"):
            export_encoder(second, tmp_path, "a", ["safetensors", "torchscript"], None)
        assert same_weights(load_encoder(tmp_path), first)
        export_encoder(second, tmp_path, "a", ["safetensors"], None)
        assert same_weights(load_encoder(tmp_path), second)
        assert listing(tmp_path) == ["a.json", "a.safetensors"]

    def test_one_card_is_not_of_two_encoders(self, tmp_path):
        first, second = encoder_of(), encoder_of(seed=1)
        export_encoder(first, tmp_path, "a", ["safetensors", "pth"], None)
        with pytest.raises(ValueError, match="a.json is the card of another encoder, with a.pth"):
            export_encoder(second, tmp_path, "a", ["safetensors"], None)
        assert same_weights(load_encoder(tmp_path), first)
        export_encoder(first, tmp_path, "a", ["torchscript"], None)
        assert set(card_of(tmp_path, "a")["files"]) == {"a.safetensors", "a.pth", "a.torchscript"}

    def test_somebody_else_s_json_is_not_overwritten(self, tmp_path):
        (tmp_path / "a.json").write_text('{"mine": 1}')
        with pytest.raises(ValueError, match="a.json, which an export would overwrite, is no card"):
            export_encoder(encoder_of(), tmp_path, "a", ["pth"], None)
        assert listing(tmp_path) == ["a.json"]


class TestCommand:
    @pytest.mark.parametrize(
        "arguments, message",
        [
            (["format=h5"], "format=['h5']: must be a list, each one of safetensors, pth, onnx"),
            (["naming=keras"], "naming='keras': must be one of torchvision, timm, or null"),
            (
                ["naming=timm", "format=onnx,pt2"],
                "naming=timm: is of format=safetensors,pth; format=onnx,pt2",
            ),
            (["naming=torchvision"], "micro_resnet is made of timm's parts; set naming=timm"),
            (["device=cuda"], "device is no setting of simco-export"),
            (["mean=0.5"], "mean=0.5: must be three finite numbers, one a channel"),
            (["size=0"], "size=0: must be a whole number of at least 1, or null"),
        ],
    )
    def test_refuses(self, arguments, message, digits_run, tmp_path):
        with pytest.raises(ValueError) as error:
            export(digits_run, f"out={tmp_path / 'out'}", *arguments)
        assert message in str(error.value)
        assert not (tmp_path / "out").exists()

    def test_a_state_dict(self, tmp_path):
        encoder = encoder_of()
        torch.save(encoder.backbone.state_dict(), tmp_path / "a.pth")
        network = ["backbone.name=micro_resnet", f"backbone.kwargs={TINY_RESNET['kwargs']}"]
        folder = export(tmp_path / "a.pth", *network, "size=16")
        assert folder == tmp_path / "a-export"
        assert same_weights(load_encoder(folder), encoder)

    def test_in_a_terminal(self, digits_run, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(sys, "argv", ["simco-export", str(digits_run), f"out={tmp_path}"])
        command.main()
        assert "trained by simco on digits" in capsys.readouterr().out
        monkeypatch.setattr(sys, "argv", ["simco-export", str(tmp_path / "no.pth")])
        with pytest.raises(SystemExit, match="^simco-export: there is no checkpoint"):
            command.main()

    def test_help_lists_the_settings(self, monkeypatch, capsys):
        monkeypatch.setattr(sys, "argv", ["simco-export", "--help"])
        with pytest.raises(SystemExit, match="0"):
            command.main()
        said = capsys.readouterr().out
        for name in ("format:", "naming:", "out:", "prefix:", "trusted:"):
            assert name in said
        assert "device" not in said


class TestSoloLearn:
    def test_files(self, digits_run, tmp_path, capsys):
        folder = export(digits_run, "format=solo-learn", f"out={tmp_path}")
        assert listing(folder / "solo-learn") == ["args.json", "encoder.ckpt", "encoder.json"]
        content = torch.load(folder / "solo-learn" / "encoder.ckpt", weights_only=True)
        trained = load_encoder(digits_run)
        assert set(content["state_dict"]) == {
            f"backbone.{k}" for k in trained.backbone.state_dict()
        }
        found = load_encoder(folder / "solo-learn")
        assert same_weights(found, trained) and found.card.accuracies == trained.card.accuracies
        assert "pretrained_feature_extractor=solo-learn/encoder.ckpt" in capsys.readouterr().out
        export(digits_run, "format=solo-learn", f"out={tmp_path}")  # in place of the first

    def test_a_network_that_it_does_not_have(self, tmp_path):
        kwargs = {"img_size": 16, "patch_size": 8, "depth": 1}
        encoder = encoder_of("deit_tiny_patch16_224", kwargs)
        with pytest.raises(ValueError, match="solo-learn has no backbone deit_tiny_patch16_224"):
            export_encoder(encoder, tmp_path, "a", ["solo-learn"], None)
