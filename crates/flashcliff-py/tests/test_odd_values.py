"""Values that are no tensors of numbers, instead of each argument of every layer and network: a table of values over that of subjects."""

import re

import pytest
import torch
from odd_subjects import R3, SUBJECTS

from flashcliff import UnsupportedError, nn
from flashcliff.compat import cgenn
from flashcliff.nn.transformer import EquiLinear

ALGEBRA = cgenn.CliffordAlgebra((1.0, 1.0, 1.0))
LONGEST = 400
"""Characters of a message that does not print an argument."""
VALUES = {
    "array": lambda x: x.numpy(),
    "list": lambda x: x.tolist(),
    "tensors": lambda x: [x, x],
    "pair": lambda x: (x, None),
    "number": lambda x: 1.0,
    "word": lambda x: "x",
    "module": lambda x: torch.nn.Identity(),
    "mapping": lambda x: {"x": x},
    "integers": lambda x: x.long(),
    "booleans": lambda x: x > 0,
    "complex": lambda x: x + 0j,
    "sparse": lambda x: x.to_sparse(),
}
# Masks may be booleans. The test of `log` multiplies its argument before the call.
LENIENT = {("attend, a mask", 3, "booleans")}
EXPECTED = re.compile("expected|must be|must have")


def refuses(call, kinds=(TypeError, ValueError)):
    with pytest.raises(kinds) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) in (TypeError, ValueError, UnsupportedError)
    assert EXPECTED.search(message) and len(message) < LONGEST, message
    return message


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "subject",
    [s for s in SUBJECTS if not s.name.startswith(("functional.", "rotors.log"))],
    ids=lambda subject: subject.name,
)
def test_arguments(subject, value):
    call = subject.module(torch.float32)
    for at in range(len(subject.shapes)):
        given = subject.inputs(2, 3, torch.float32)
        given[at] = VALUES[value](given[at])
        if (subject.name, at, value) not in LENIENT:
            kinds = UnsupportedError if value == "sparse" else TypeError
            refuses(lambda given=given: call(*given), (kinds, TypeError))


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (torch.ones(2, 3).numpy(), "call `torch.from_dlpack(scalars)`"),
        ([[1.0] * 3] * 2, "call `torch.tensor(scalars)`"),
        ([torch.ones(3)] * 2, "call `torch.stack(scalars)`"),
        (torch.ones(2, 3).long(), "convert it with `.float()`"),
        (torch.ones(2, 3).to_sparse(), "call `to_dense()`"),
    ],
)
def test_what_messages_say_helps(value, remedy):
    """Scalars that are changed as the message says have the result of ones."""
    layer, mv = EquiLinear(R3, 1, 1, 3, 1), torch.ones(8, 2, 1)
    message = refuses(lambda: layer(mv, value), (TypeError, UnsupportedError))
    assert remedy in message
    code = re.search("`(.*?)`", message[message.index(remedy) :])[1]
    # `stack` and others are calls of a name, conversions are calls of a method.
    changed = eval(code if "scalars" in code else f"scalars.{code.lstrip('.')}", {"torch": torch, "scalars": value})
    for got, want in zip(layer(mv, changed), layer(mv, torch.ones(2, 3)), strict=True):
        assert torch.equal(got, want)


NONE = [
    s
    for s in SUBJECTS
    if s.name.startswith(("cgenn.", "nn.", "flash_clifford.", "attend"))
]


@pytest.mark.parametrize("subject", NONE, ids=lambda subject: subject.name)
def test_none(subject):
    call = subject.module(torch.float32)
    for at in range(len(subject.shapes)):
        given = subject.inputs(2, 3, torch.float32)
        given[at] = None
        if not (subject.name == "attend, a mask" and at == 3):
            assert re.search("got None", refuses(lambda given=given: call(*given), TypeError))


NODES, EDGES = torch.ones(3, 2, 8), torch.tensor([[0, 1], [1, 2]])
OF_EDGES, OF_NODES = torch.ones(2, 1, 8), torch.ones(3, 1, 8)
GRAPHS = [
    ("nodes as an array", (NODES.numpy(), EDGES, OF_EDGES), TypeError, "h: expected a torch.Tensor, got ndarray"),
    ("no nodes", (None, EDGES, OF_EDGES), TypeError, "h: expected a torch.Tensor, got None"),
    ("nodes without blades", (NODES[..., 0], EDGES, OF_EDGES), ValueError, r"h: expected \[nodes, channels, ..., 8\]"),
    ("no edges", (NODES, None, OF_EDGES), TypeError, "edge_index: expected a torch.Tensor, got None"),
    ("edges as numbers", (NODES, [[0, 1], [1, 2]], OF_EDGES), TypeError, "edge_index: expected a torch.Tensor, got list"),
    ("edges in columns", (NODES, torch.zeros(3, 2).long(), OF_EDGES), ValueError, r"edge_index: expected \[2, edges\], got \[3, 2\]"),
    ("ends of other edges", (NODES, (EDGES[0], EDGES[1, :1]), OF_EDGES), ValueError, r"got \[\[2\], \[1\]\]"),
    ("edges of a list", (NODES, EDGES, OF_EDGES.tolist()), TypeError, "edge_attr: expected a torch.Tensor, got list"),
    ("values of other edges", (NODES, EDGES, OF_EDGES[:1]), ValueError, r"edge_attr: expected \[2, channels, ..., 8\], got \[1, 1, 8\]"),
    ("values of other nodes", (NODES, EDGES, OF_EDGES, OF_NODES[:2]), ValueError, r"node_attr: expected \[3, channels, ..., 8\]"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "error", "says"), [row[1:] for row in GRAPHS], ids=[row[0] for row in GRAPHS])
def test_messages_of_cgenn(given, error, says):
    with pytest.raises(error, match=says):
        cgenn.EGCL(ALGEBRA, 2, 4, 2, 1)(*given)


def test_messages_of_scalars():
    layer = nn.EGCL(R3, 2, edge_scalars=1)
    with pytest.raises(TypeError, match="edge_scalars: expected a torch.Tensor, got list"):
        layer(torch.ones(8, 3, 2), EDGES, [[1.0], [1.0]])


@pytest.mark.parametrize("name", ["zeta", "parity", "q", "norm", "alpha", "beta", "gamma", "norms", "inverse"])
def test_functions_of_an_algebra(name):
    with pytest.raises(TypeError, match="mv: expected a torch.Tensor, got list; call `torch.tensor"):
        getattr(ALGEBRA, name)([1.0] * 8)


def test_blades_of_an_algebra():
    for call in (
        lambda: ALGEBRA.get([1.0] * 8, (1,)),
        lambda: ALGEBRA.get_grade([1.0] * 8, 1),
        lambda: ALGEBRA.embed([1.0], (1,)),
        lambda: ALGEBRA.embed_grade([1.0] * 3, 1),
        lambda: ALGEBRA.geometric_product([1.0] * 8, [1.0] * 8),
    ):
        with pytest.raises(TypeError, match=r": expected a torch.Tensor, got list; call `torch.tensor"):
            call()
