"""Whatever file a network is in, its weights come out of it, or a message that says why not."""

import json
import shutil

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file

from simco_methods import load_encoder
from simco_methods.encoder import Card
from simco_methods.host import HOST
from tests.encoder.conftest import encoder_of, same_weights
from tests.helpers import TINY_RESNET

TINY = {"backbone": TINY_RESNET["name"], "kwargs": TINY_RESNET["kwargs"], "size": 16}


def prefixed(net, prefix):
    return {f"{prefix}{key}": value for key, value in net.state_dict().items()}


@pytest.fixture
def net():
    return encoder_of().backbone


def saved(content, path, **options):
    torch.save(content, path, **options)
    return path


class TestOfTheRunner:
    def test_a_run_s_folder_and_its_checkpoint(self, digits_run):
        encoder = load_encoder(digits_run)
        path = digits_run / "checkpoints" / "last.ckpt"
        assert same_weights(encoder, load_encoder(str(path)))
        assert same_weights(encoder, load_encoder(path.parent))
        trained = torch.load(path, weights_only=True)["state_dict"]
        assert all(
            torch.equal(trained[f"backbone.{key}"], value)
            for key, value in encoder.backbone.state_dict().items()
        )
        assert not encoder.training and encoder.features == 16

    def test_what_is_known_of_it(self, digits_run):
        card = load_encoder(digits_run).card
        summary = json.loads((digits_run / "summary.json").read_text())
        assert (card.method, card.dataset, card.epochs, card.steps) == ("simco", "digits", 2, 6)
        assert card.classes == list("0123456789")
        assert card.accuracies["val_acc1"] == summary["last_epoch"]["val_acc1"]
        assert card.versions == summary["versions"]
        assert card.settings["method_kwargs"]["tau_alpha"] == 0.1
        assert card.preprocessing.mean == (0.305,) * 3 and card.preprocessing.size == 16

    def test_an_unfinished_run_has_no_accuracies(self, digits_run, tmp_path):
        shutil.copytree(digits_run / "checkpoints", tmp_path / "checkpoints")
        card = load_encoder(tmp_path).card
        assert card.accuracies == {} and card.epochs == 2

    def test_a_summary_that_is_none_is_named(self, digits_run, tmp_path):
        shutil.copytree(digits_run / "checkpoints", tmp_path / "checkpoints")
        (tmp_path / "summary.json").write_text("{")
        with pytest.raises(ValueError, match="summary.json is no summary of a run"):
            load_encoder(tmp_path)

    def test_a_checkpoint_that_was_removed(self, digits_run, tmp_path):
        shutil.copy(digits_run / "summary.json", tmp_path)
        with pytest.raises(FileNotFoundError, match="its checkpoint was not saved or was removed"):
            load_encoder(tmp_path)

    def test_its_own_normalisation_and_size_are_kept_or_set(self, digits_run):
        seen = load_encoder(digits_run, size=24, std=[0.1, 0.2, 0.3]).card.preprocessing
        assert (seen.size, seen.resize) == (24, 24)
        assert (seen.mean, seen.std) == ((0.305,) * 3, (0.1, 0.2, 0.3))


class TestPrefixes:
    @pytest.mark.parametrize(
        "content",
        [
            lambda net: prefixed(net, ""),
            lambda net: prefixed(net, "module."),
            lambda net: {"model": prefixed(net, ""), "epoch": 3},
            lambda net: {"state_dict": prefixed(net, "encoder.")},
            lambda net: {"state_dict": prefixed(net, "module.backbone._orig_mod.")},
            # A decoder with more weights than the network that is wanted.
            lambda net: {
                "encoder": prefixed(net, ""),
                "decoder": {f"layers.{i}.weight": torch.zeros(1) for i in range(500)},
            },
        ],
    )
    def test_any(self, content, net, tmp_path):
        path = saved(content(net), tmp_path / "a.pth")
        assert same_weights(load_encoder(path, **TINY).backbone, net)

    @pytest.mark.parametrize(
        "one, other",
        [
            ("module.encoder_q.", "module.encoder_k."),
            ("encoder.", "momentum_encoder."),
            ("backbone.", "momentum_backbone."),
            ("student.backbone.", "teacher.backbone."),
        ],
    )
    def test_a_moving_average_is_asked_for(self, one, other, net, tmp_path):
        average = encoder_of(seed=1).backbone
        content = {"state_dict": {**prefixed(average, other), **prefixed(net, one)}}
        content["state_dict"]["queue"] = torch.zeros(8, 4)
        path = saved(content, tmp_path / "a.pth")
        assert same_weights(load_encoder(path, **TINY).backbone, net)
        assert same_weights(load_encoder(path, prefix=other, **TINY).backbone, average)
        with pytest.raises(ValueError) as error:
            load_encoder(path, prefix="nothing.", **TINY)
        assert "prefix=nothing.: no weight of the network" in str(error.value)
        assert f"state_dict.{other} (" in str(error.value)


class TestSoloLearn:
    @staticmethod
    def write(net, folder, args, prefix="backbone."):
        (folder / "args.json").write_text(json.dumps(args))
        content = {"state_dict": prefixed(net, prefix), "epoch": 4, "global_step": 50}
        return saved(content, folder / "run-ep=4.ckpt")

    def test_with_its_arguments_beside(self, net, tmp_path):
        args = {
            "method": "mocov2plus",
            "backbone": {**TINY_RESNET, "kwargs": {**TINY_RESNET["kwargs"]}},
            "data": {"dataset": "stl10", "train_path": "/home/somebody/stl10"},
            "augmentations": [{"crop_size": 96, "num_crops": 2}],
            "checkpoint": {"dir": "trained_models"},
        }
        self.write(net, tmp_path, args)
        encoder = load_encoder(tmp_path)
        assert same_weights(encoder.backbone, net)
        card = encoder.card
        assert (card.method, card.dataset, card.epochs, card.steps) == (
            "mocov2plus",
            "stl10",
            5,
            50,
        )
        assert card.preprocessing.size == 96 and card.preprocessing.mean[0] == 0.4914
        assert "somebody" not in json.dumps(card.to_json())

    @pytest.mark.parametrize("key", ["encoder", "backbone"])
    def test_of_the_authors_and_of_older_versions(self, key, tmp_path):
        net = encoder_of("resnet18", {}, small_stem=True, size=32).backbone
        args = {"method": "simco_dual_temperature", "dataset": "cifar100", "crop_size": [32, 32]}
        args |= {key: "resnet18", "data_dir": "/home/somebody", "backbone_args": {"cifar": True}}
        card = load_encoder(self.write(net, tmp_path, args, "encoder.")).card
        assert card.small_stem and card.dataset == "cifar100" and card.preprocessing.size == 32
        assert "somebody" not in json.dumps(card.to_json())

    def test_arguments_that_are_none(self, net, tmp_path):
        with pytest.raises(ValueError, match="args.json is no configuration of a training run"):
            load_encoder(self.write(net, tmp_path, [1]))

    @pytest.mark.skipif(HOST != "builtin", reason="of the built-in host")
    def test_its_own_vits_need_it(self, net, tmp_path):
        args = {"method": "mae", "backbone": {"name": "vit_tiny"}, "data": {"dataset": "custom"}}
        with pytest.raises(ValueError, match="vit_tiny of solo-learn's mae is another network"):
            load_encoder(self.write(net, tmp_path, args))


class TestStateDicts:
    def test_of_torchvision_with_its_head(self, tmp_path):
        theirs = torchvision.models.resnet18()
        path = saved(theirs.state_dict(), tmp_path / "resnet18.pth")
        encoder = load_encoder(path, backbone="resnet18")
        theirs.fc = torch.nn.Identity()
        assert same_weights(encoder.backbone, theirs) and encoder.features == 512
        assert encoder.card.preprocessing.resize == 256

    @pytest.mark.parametrize("name", ["vit_tiny", "vit_tiny_patch16_224.augreg_in21k"])
    def test_of_timm_with_its_head(self, name, tmp_path):
        kwargs = {"img_size": 32, "patch_size": 16}
        theirs = timm.create_model("vit_tiny_patch16_224", num_classes=7, **kwargs)
        save_file(theirs.state_dict(), tmp_path / "a.safetensors")
        encoder = load_encoder(tmp_path, backbone=name, kwargs=kwargs, size=32)
        theirs.reset_classifier(0)
        assert same_weights(encoder.backbone, theirs)

    @pytest.mark.parametrize(
        "name, where", [("mobilenet_v3_small", "classifier.3"), ("swin_t", "head")]
    )
    def test_of_any_network_of_torchvision(self, name, where, tmp_path):
        theirs = torchvision.models.get_model(name)
        path = saved(theirs.state_dict(), tmp_path / "a.pth")
        encoder = load_encoder(path, backbone=f"torchvision.{name}", size=32)
        width = theirs.get_submodule(where).in_features
        kept = [key for key in theirs.state_dict() if not key.startswith(f"{where}.")]
        assert list(encoder.backbone.state_dict()) == kept and encoder.features == width
        with pytest.raises(ValueError, match="backbone.name=torchvision.squeezenet1_0.*no linear"):
            load_encoder(path, backbone="torchvision.squeezenet1_0")

    def test_in_torch_s_old_format(self, net, tmp_path):
        path = saved(net.state_dict(), tmp_path / "a.pt", _use_new_zipfile_serialization=False)
        assert same_weights(load_encoder(path, **TINY).backbone, net)

    def test_half_precision_becomes_float32(self, net, tmp_path):
        half = {k: v.half() if v.is_floating_point() else v for k, v in net.state_dict().items()}
        found = load_encoder(saved(half, tmp_path / "a.pth"), **TINY).backbone.conv1.weight
        assert found.dtype == torch.float32 and torch.equal(found.half(), half["conv1.weight"])

    def test_a_whole_network_has_to_be_trusted(self, net, tmp_path):
        path = saved(net, tmp_path / "a.pth")
        with pytest.raises(ValueError, match="more than plain values.*trusted=true"):
            load_encoder(path, **TINY)
        assert same_weights(load_encoder(path, trusted=True, **TINY).backbone, net)

    def test_nothing_is_downloaded(self, net, tmp_path, monkeypatch):
        monkeypatch.setattr(torch.hub, "load_state_dict_from_url", None)
        theirs = torchvision.models.resnet18()
        path = saved(theirs.state_dict(), tmp_path / "resnet18.pth")
        encoder = load_encoder(path, backbone="resnet18", kwargs={"weights": "DEFAULT"}, size=32)
        assert encoder.card.kwargs == {}


class TestRefused:
    def test_none_that_match_lists_both_sides(self, tmp_path):
        path = saved({"a.x": torch.zeros(2), "b": torch.zeros(2)}, tmp_path / "a.pth")
        with pytest.raises(ValueError) as error:
            load_encoder(path, **TINY)
        assert "no weight in" in str(error.value) and "the file has a.x, b;" in str(error.value)
        assert "needed are conv1.weight, bn1.weight" in str(error.value)

    def test_some_that_match_list_what_lacks(self, net, tmp_path):
        state = net.state_dict()
        del state["layer1.0.conv1.weight"]
        state["conv1.weight"] = torch.zeros(3, 3)
        state["layer9.0.weight"] = torch.zeros(1)
        with pytest.raises(ValueError) as error:
            load_encoder(saved(state, tmp_path / "a.pth"), **TINY)
        for said in (
            "layer1.0.conv1.weight is not there",
            "layer9.0.weight is not known",
            "conv1.weight has the shape (3, 3), not (32, 3, 3, 3)",
        ):
            assert said in str(error.value)

    def test_weights_that_are_not_finite(self, net, tmp_path):
        state = net.state_dict()
        state["conv1.weight"] = state["conv1.weight"] * float("nan")
        with pytest.raises(ValueError, match="not finite: conv1.weight"):
            load_encoder(saved(state, tmp_path / "a.pth"), **TINY)

    @pytest.mark.parametrize(
        "content", [torch.zeros(3), [torch.zeros(3)], {"a": 1}, 7], ids=["tensor", "list", "", "7"]
    )
    def test_files_without_weights(self, content, tmp_path):
        with pytest.raises(ValueError, match="holds no weights"):
            load_encoder(saved(content, tmp_path / "a.pth"), **TINY)

    @pytest.mark.parametrize("name", ["a.pth", "a.safetensors", "a.ckpt"])
    def test_files_that_are_none(self, name, tmp_path):
        (tmp_path / name).write_bytes(b"nothing")
        with pytest.raises(ValueError, match="cannot be read as"):
            load_encoder(tmp_path / name, **TINY)
        with pytest.raises(FileNotFoundError, match="there is no"):
            load_encoder(tmp_path / f"other-{name}", **TINY)

    @pytest.mark.parametrize("name", ["a.onnx", "a.torchscript", "a.pt2"])
    def test_programs(self, name, tmp_path):
        with pytest.raises(ValueError, match="is a program, whose weights cannot be taken out"):
            load_encoder(tmp_path / name)

    def test_folders(self, net, tmp_path):
        with pytest.raises(FileNotFoundError, match="there is no checkpoint in the folder"):
            load_encoder(tmp_path)
        for name in ("1a2b3c4d", "5e6f7a8b"):
            (tmp_path / "simco" / name / "checkpoints").mkdir(parents=True)
        with pytest.raises(FileNotFoundError, match="folders of runs .1a2b3c4d, 5e6f7a8b.: name"):
            load_encoder(tmp_path / "simco")
        for name in ("epoch=1.ckpt", "epoch=2.ckpt"):
            saved({"state_dict": net.state_dict()}, tmp_path / name)
        with pytest.raises(ValueError, match="holds several .epoch=1.ckpt, epoch=2.ckpt."):
            load_encoder(tmp_path)
        saved({"state_dict": net.state_dict()}, tmp_path / "last.ckpt")
        assert same_weights(load_encoder(tmp_path, **TINY).backbone, net)

    @pytest.mark.parametrize(
        "changes, message",
        [
            ({"backbone": None}, "does not say what network it is of: set backbone.name=NAME"),
            ({"backbone": "resnet19"}, "backbone.name='resnet19' is none of resnet18, .* timm's"),
            ({"kwargs": {"width": 3}}, "backbone.name=micro_resnet .*'width': 3.* cannot be built"),
            ({"backbone": "vit_tiny", "kwargs": {"num_heads": 7}}, "vit_tiny .*cannot be built"),
            ({"mean": [0.5]}, r"mean=\[0.5\]: must be three finite numbers, one a channel"),
            ({"mean": 0.5}, "mean=0.5: must be three finite numbers, one a channel"),
            ({"std": [0.2, 0.0, 0.2]}, "std=.*: must be three finite numbers above 0"),
            ({"size": 0}, "size=0: must be at least 1"),
            ({"device": "cuda:77"}, "device=cuda:77: not on this machine"),
            ({"device": "gpu"}, "device=gpu: not on this machine"),
        ],
    )
    def test_arguments(self, changes, message, net, tmp_path):
        path = saved(net.state_dict(), tmp_path / "a.pth")
        with pytest.raises(ValueError, match=message):
            load_encoder(path, **{**TINY, **changes})

    def test_a_vit_at_another_size(self, tmp_path):
        kwargs = {"img_size": 16, "patch_size": 8}
        vit = timm.create_model("vit_tiny_patch16_224", num_classes=0, **kwargs)
        path = saved(vit.state_dict(), tmp_path / "a.pth")
        with pytest.raises(ValueError, match="vit_tiny cannot take images of size=32 pixels"):
            load_encoder(path, backbone="vit_tiny", kwargs=kwargs, size=32)

    def test_what_gives_no_features(self, tmp_path):
        kwargs = {"img_size": 16, "patch_size": 8, "global_pool": ""}
        vit = timm.create_model("vit_tiny_patch16_224", num_classes=0, **kwargs)
        path = saved(vit.state_dict(), tmp_path / "a.pth")
        with pytest.raises(ValueError, match=r"vit_tiny gives \(5, 192\) an image, no features"):
            load_encoder(path, backbone="vit_tiny", kwargs=kwargs, size=16)


class TestCards:
    @pytest.mark.parametrize(
        "change, message",
        [
            (lambda c: "{", "a.json is no JSON"),
            (lambda c: json.dumps({**c, "format": 2}), "is of format 2, this version reads 1"),
            (lambda c: json.dumps({**c, "preprocessing": {"size": 3}}), "no whole card .*'resize'"),
            (
                lambda c: json.dumps({**c, "preprocessing": {**c["preprocessing"], "mean": 0.5}}),
                "is no whole card of an encoder .*float",
            ),
            (
                lambda c: json.dumps(
                    {**c, "preprocessing": {**c["preprocessing"], "std": [1, 1, 0]}}
                ),
                "is no whole card of an encoder .preprocessing=",
            ),
            (lambda c: json.dumps({**c, "backbone": 7}), "no whole card of an encoder .backbone=7"),
        ],
    )
    def test_that_are_none(self, change, message, tmp_path):
        encoder = encoder_of()
        path = saved(encoder.backbone.state_dict(), tmp_path / "a.pth")
        (tmp_path / "a.json").write_text(change(encoder.card.to_json()))
        with pytest.raises(ValueError, match=message):
            load_encoder(path, **TINY)

    def test_somebody_else_s_file_of_that_name_is_left_alone(self, net, tmp_path):
        path = saved(net.state_dict(), tmp_path / "a.pth")
        (tmp_path / "a.json").write_text('{"num_features": 16}')
        assert same_weights(load_encoder(path, **TINY).backbone, net)

    def test_keys_of_later_versions_are_left_out(self):
        card = encoder_of().card
        content = {**card.to_json(), "mood": "fine"}
        assert Card.from_json(json.dumps(content), "a card") == card
