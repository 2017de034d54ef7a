"""Missing files of a checkpoint come from its base model, in a view. Bad names and adapters are refused."""

import fcntl
import json
import os
from contextlib import contextmanager
from functools import partial

import pytest

from swelab.configs.kinds.policy import CheckpointPolicy
from swelab.models import policy_models as policies
from swelab.models.serving.complete_checkpoint import complete_folder, longest_context, vocabulary
from swelab.models.serving.lora import check_adapters, check_name
from swelab.models.serving.serve_by_hand import (
    check_free,
    chosen_key,
    further_options,
    hold,
    is_loopback,
    private_file,
    serve_by_hand,
)
from swelab.models.serving.server import Endpoint
from swelab.records import InputError
from tests.toy_checkpoint import make_adapter, make_checkpoint


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("base") / "toy")


@pytest.fixture
def checkpoint(base, tmp_path):
    return make_checkpoint(tmp_path / "tuned", seed=1)


def listing(folder):
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


def without(folder, *names):
    for name in names:
        (folder / name).unlink()
    return folder


def test_weights_alone_are_completed_and_not_written_to(checkpoint, base, capsys):
    without(checkpoint, *(p.name for p in checkpoint.iterdir() if p.suffix != ".safetensors"))
    before = listing(checkpoint)
    with complete_folder(checkpoint, base) as folder:
        assert folder != checkpoint
        for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
            assert (folder / name).read_bytes() == (base / name).read_bytes()
        assert (folder / "model.safetensors").resolve() == checkpoint / "model.safetensors"
        assert "<|im_start|>" in (folder / "chat_template.jinja").read_text()
    assert not folder.exists() and listing(checkpoint) == before
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1 and "config.json, generation_config.json" in told and str(base) in told


def test_what_the_checkpoint_has_is_its_own(checkpoint, base):
    (checkpoint / "generation_config.json").write_text('{"eos_token_id": 7}')
    without(checkpoint, "config.json")
    with complete_folder(checkpoint, base) as folder:
        assert json.loads((folder / "generation_config.json").read_text()) == {"eos_token_id": 7}
        assert sorted(p.name for p in folder.iterdir() if not p.is_symlink()) == ["config.json"]


def test_only_the_chat_template_is_missing(checkpoint, base):
    path = checkpoint / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    template = settings.pop("chat_template")
    path.write_text(json.dumps(settings))
    with pytest.raises(InputError, match="no chat template; expected chat_template.jinja, or a base model"):
        complete_folder(checkpoint, None).__enter__()
    with complete_folder(checkpoint, base) as folder:
        assert (folder / "chat_template.jinja").read_text() == template
        assert json.loads((folder / "tokenizer_config.json").read_text()) == settings


@pytest.mark.parametrize(
    ("field", "value"), [("hidden_size", 128), ("vocab_size", 321), ("num_hidden_layers", 3)]
)
def test_a_base_of_another_size_is_refused(checkpoint, tmp_path, field, value):
    other = make_checkpoint(tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {field: value}))
    without(checkpoint, "config.json")
    with pytest.raises(InputError, match=f"{field} is {value}; expected .*as in the weights of"):
        complete_folder(checkpoint, other).__enter__()


def test_a_base_of_another_vocabulary_is_refused(checkpoint, tmp_path):
    other = make_checkpoint(tmp_path / "other")
    (other / "merges.txt").write_text("#version: 0.2\na b\n")
    without(checkpoint, "tokenizer.json")
    with pytest.raises(InputError, match=r"merges.txt: another vocabulary than that of"):
        complete_folder(checkpoint, other).__enter__()


def test_the_context_is_the_models_at_most(checkpoint, base):
    assert longest_context(checkpoint, base, 32768) == 512
    without(checkpoint, "config.json")
    assert longest_context(checkpoint, base, 100) == 100
    with pytest.raises(InputError, match="config.json: no such file"):
        longest_context(checkpoint, None, 100)


def test_the_vocabulary_is_that_of_the_embedding(checkpoint, base):
    assert vocabulary(checkpoint, base) == 320
    without(checkpoint, "config.json")
    assert vocabulary(checkpoint, str(base)) == 320
    (checkpoint / "config.json").write_text('{"text_config": {"vocab_size": 7}}')
    assert vocabulary(checkpoint, None) == 7
    for odd in ("{}", '{"vocab_size": true}', '{"vocab_size": 0}', "[]"):
        (checkpoint / "config.json").write_text(odd)
        with pytest.raises(InputError, match="config.json: vocab_size is .*; expected how many tokens"):
            vocabulary(checkpoint, base)


@pytest.mark.parametrize(
    "option", ["--host 0.0.0.0", "--hos=0.0.0.0", "--port=1", "--admin-api k", "--conf x"]
)
def test_further_options_do_not_open_the_engine(option):
    with pytest.raises(InputError, match="among further options; expected"):
        further_options(option)


@pytest.mark.parametrize(
    "name",
    ["gpt-4o", "openai/gpt-4o", "GPT4", "o3-mini", "claude-3-7-sonnet", "chatgpt-4o", "gemini-2.5-pro"],
)
def test_a_vendors_name_is_refused(name):
    with pytest.raises(InputError, match="is a vendor's"):
        check_name(name)


@pytest.mark.parametrize("name", ["qwen2p5-coder-7b-sft-local", "gpt2-mine", "toy", "my/o3x", "opus"])
def test_other_names_are_served(name):
    check_name(name)


@pytest.mark.parametrize("name", ["", "a b", "../x", "x:y", "-x"])
def test_odd_names_are_refused(name):
    with pytest.raises(InputError, match="not a model name"):
        check_name(name)


def test_adapters_are_checked_before_anything_starts(base, tmp_path):
    folder = make_adapter(tmp_path / "adapter")
    check_adapters({"tuned": str(folder)})
    weights = folder / "adapter_model.safetensors"
    os.truncate(weights, weights.stat().st_size - 10)
    with pytest.raises(InputError, match="a whole safetensors file"):
        check_adapters({"tuned": str(folder)})
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError, match="rank r is None"):
        check_adapters({"tuned": str(folder)})
    with pytest.raises(InputError, match=r"adapter_config.json: no such file"):
        check_adapters({"tuned": str(base)})


def test_a_key_that_can_be_guessed_is_for_this_machine_only(monkeypatch):
    monkeypatch.setenv("API_KEY", "swesmith")
    assert chosen_key("API_KEY", "127.0.0.1") == chosen_key("API_KEY", "localhost") == "swesmith"
    with pytest.raises(InputError, match="listens on 0.0.0.0; expected at least 16") as error:
        chosen_key("API_KEY", "0.0.0.0")
    assert "swesmith" not in str(error.value)
    monkeypatch.delenv("API_KEY")
    assert len(chosen_key("API_KEY", "0.0.0.0")) >= 32 and chosen_key("", "::1") != chosen_key("", "::1")
    assert is_loopback("::1") and not is_loopback("node7")


def test_further_options_hold_no_secret():
    assert further_options("--mem-fraction-static 0.8 --x 'a b'") == [
        "--mem-fraction-static",
        "0.8",
        "--x",
        "a b",
    ]
    for wrong in ("--api-key hush", "--api-key=hush", "--config x"):
        with pytest.raises(InputError, match="expected --api-key-env") as error:
            further_options(wrong)
        assert "hush" not in str(error.value)
    with pytest.raises(InputError, match="cannot be split"):
        further_options("'")


def test_the_token_file_is_private_and_goes(tmp_path):
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)
    with private_file(path, "hush\n"):
        assert path.read_text() == "hush\n" and path.stat().st_mode & 0o077 == 0
    assert not path.exists()
    with private_file(tmp_path / "new" / "token", "x"):
        assert (tmp_path / "new" / "token").read_text() == "x"
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        private_file(tmp_path / "file" / "token", "x").__enter__()


def test_a_file_that_goes_at_the_moment_it_is_taken_is_made_anew(tmp_path, monkeypatch):
    """A server that ends removes its file after the next server opened it, but before that one locks it."""
    path, real = tmp_path / "token", fcntl.flock

    def flock(stream, how):
        monkeypatch.setattr(fcntl, "flock", real)
        path.unlink()
        real(stream, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with private_file(path, "mine\n"):
        assert path.read_text() == "mine\n"


def test_a_file_of_another_server_stays(tmp_path):
    """A second server was started after its token file had been deleted by hand."""
    path = tmp_path / "token"
    with private_file(path, "first\n"):
        path.unlink()
        with private_file(path, "second\n"), pytest.raises(InputError, match="a running server uses this"):
            check_free(path)
        path.write_text("third\n")
    assert path.read_text() == "third\n"


def test_a_second_server_takes_neither_token_nor_log_of_the_first(checkpoint, tmp_path):
    token, log = tmp_path / "server.token", tmp_path / "server.log"
    log.write_text("loading\n")
    sizes = {"name": "mine", "key_env": "", "host": "127.0.0.1", "context_length": 512}
    second = partial(serve_by_hand, checkpoint, **sizes, max_total_tokens=None, max_running_requests=1)
    with hold(log):
        with pytest.raises(InputError, match="server.log: a running server uses this file; expected --token"):
            second(token=token, log=log)
        with private_file(token, "hush\n"):
            with pytest.raises(InputError, match="server.token: a running server uses this file"):
                second(token=token, log=tmp_path / "other.log")
            assert token.read_text() == "hush\n"
    assert log.read_text() == "loading\n" and not (tmp_path / "other.log").exists()


def test_a_policy_is_served_with_its_base_and_its_adapter(checkpoint, base, tmp_path, monkeypatch):
    adapter, told = make_adapter(tmp_path / "adapter"), {}
    sizes = {"context_length": 512, "max_total_tokens": 512, "max_running_requests": 1}
    plain = CheckpointPolicy(kind="checkpoint", scaffold="x", weights=str(checkpoint), **sizes)
    beside = {"base": str(base), "adapter": str(adapter), "dtype": "bfloat16"}
    asked = plain.model_copy(update=beside)

    @contextmanager
    def serve_fleet(folder, **settings):
        told.update(settings, folder=folder)
        yield Endpoint("http://127.0.0.1:1/v1", "key", settings["name"])

    monkeypatch.setattr(policies, "serve_fleet", serve_fleet)
    monkeypatch.setattr(policies, "ChatModel", lambda endpoint, *_: endpoint.model)
    with policies.open_policy(asked, "mine", {}, tmp_path / "log", None) as model_for:
        assert model_for({}) == "mine:adapter" and told["folder"] == checkpoint
    assert (told["base"], told["adapters"], told["dtype"]) == (
        str(base),
        {"adapter": str(adapter)},
        "bfloat16",
    )
    with policies.open_policy(plain, "mine", {}, tmp_path / "log", None) as model_for:
        assert model_for({}) == "mine" and (told["base"], told["adapters"], told["dtype"]) == (
            None,
            {},
            "auto",
        )
    keys = [policies.weights_digest(each) for each in (plain, asked)]
    make_adapter(adapter, seed=8)
    keys.append(policies.weights_digest(asked))
    (base / "model.safetensors").touch()
    assert policies.weights_digest(asked) == keys[2] and len(set(keys)) == 3


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json", "generation_config.json"])
def test_the_digest_of_plain_weights_is_of_all_that_affects_answers(tmp_path, name):
    """Another chat template makes other prompts, so earlier answers do not count."""
    folder = make_checkpoint(tmp_path / "mine")
    sizes = {"context_length": 512, "max_total_tokens": 512, "max_running_requests": 1}
    policy = CheckpointPolicy(kind="checkpoint", scaffold="x", weights=str(folder), **sizes)
    first = policies.weights_digest(policy)
    (folder / "README.md").write_text("A note.")
    assert policies.weights_digest(policy) == first
    (folder / name).write_text('{"changed": true}')
    second = policies.weights_digest(policy)
    make_checkpoint(folder, seed=1)
    assert len({first, second, policies.weights_digest(policy)}) == 3
