"""The examples for speech and images: generations of their .pte files are those of the models."""

import importlib.util
from pathlib import Path

import pytest
import torch
from executorch.runtime import Runtime

from etdev import Lowerer

FILE = Path(__file__).parents[1] / "examples" / "multimodal.py"


@pytest.fixture(scope="module")
def examples():
    spec = importlib.util.spec_from_file_location("multimodal", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def saved(methods, folder):
    lowered = Lowerer(["cpu"]).lower(methods)
    path = lowered.save(folder / "net.pte")
    verified = lowered.verify(path=path)
    assert not verified.unverified
    program = Runtime.get().load_program(path)
    return {name: program.load_method(name) for name in methods}


def assert_near(found, wanted):
    assert torch.allclose(found, wanted, atol=1e-5 * float(wanted.abs().max()), rtol=0)


@pytest.mark.suite
@torch.no_grad()
def test_whisper_transcribes(examples, tmp_path):
    methods, model = saved(examples.whisper(), tmp_path), examples.whisper_model()
    for sound in (torch.randn(1, 8, 40), torch.randn(1, 8, 40)):
        (states,) = methods["encode"].execute([sound])
        known, done = [1, 9], 0
        for _ in range(6):
            method = "decode" if done else "prefill"
            new = [torch.tensor([known[done:]]), torch.tensor([done]), states]
            (found,) = methods[method].execute(new)
            wanted = model(input_features=sound, decoder_input_ids=torch.tensor([known])).logits
            assert_near(found, wanted[:, -1])
            done = len(known)
            known.append(int(found.argmax()))


@pytest.mark.suite
@torch.no_grad()
def test_llava_answers_about_an_image(examples, tmp_path):
    methods, model = saved(examples.llava(), tmp_path), examples.llava_model()
    for image in (torch.randn(1, 3, 16, 16), torch.randn(1, 3, 16, 16)):
        (seen,) = methods["see"].execute([image])
        known, places = [1, *[63] * seen.shape[1], 5], seen.shape[1]
        before, after = (methods["embed"].execute([torch.tensor([[t]])])[0].clone() for t in (1, 5))
        new, done = torch.cat([before, seen, after], 1), 0
        for _ in range(6):
            method = "decode" if done else "prefill"
            (found,) = methods[method].execute([new, torch.tensor([done])])
            wanted = model(input_ids=torch.tensor([known]), pixel_values=image).logits[:, -1]
            assert_near(found, wanted)
            done = len(known)
            known.append(int(found.argmax()) % 63)
            (new,) = methods["embed"].execute([torch.tensor([known[-1:]])])
        assert places == 4
