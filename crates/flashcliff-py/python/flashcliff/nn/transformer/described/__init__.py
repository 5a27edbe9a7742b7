"""Layers as one function of autograd, which runs a network of the Rust crate ``flashcliff-network``.

A layer describes itself: ``describe`` adds its steps to a network, and the steps of a block are the steps of its layers. Layers of
messages on graphs have ``describe_on_graph``. A plan of the network then computes a block, or a whole transformer, and its gradients,
on the CPU and on GPUs.

| module        | what                                                                       |
|---------------|----------------------------------------------------------------------------|
| `draft`       | a network in the making, with the parameters of layers                     |
| `description` | networks of tokens, which layers add their steps to                        |
| `messages`    | networks of multivectors of nodes and edges                                |
| `call`        | the tensors of a call, as the matrices that a plan reads                   |
| `calls`       | the same descriptions as calls of layers, where no function stands for these |
| `graphs`      | the tensors of a call on a graph                                           |
| `draws`       | the random numbers of dropout                                              |
| `function`    | a plan as a function of autograd, and gradients of gradients               |
| `choice`      | whether the function may stand for calls of layers, and why not            |
| `compiled`    | the same within a trace of `torch.compile`                                 |
| `node`        | networks as operators of PyTorch, the nodes of compiled graphs             |
| `recorded`    | what tells one network from another                                        |
| `stored`      | networks of files, whose gradients of gradients are networks, too          |

Layers are called where something follows or changes them, and where a network cannot say what they compute.
"""

from __future__ import annotations

from .call import Given, Maybe
from .calls import Calls
from .choice import attempt_on_graph, known_of, run, run_chain
from .compiled import Networked
from .description import Description, Tokens, Variant
from .draft import Undescribed
from .draws import drawn
from .function import by_layers, composes, computed_again
from .graphs import MessageGiven
from .messages import MessageDescription, MessageVariant, Multivectors

__all__ = [
    "Calls",
    "Description",
    "Given",
    "Maybe",
    "MessageDescription",
    "MessageGiven",
    "MessageVariant",
    "Multivectors",
    "Networked",
    "Tokens",
    "Undescribed",
    "Variant",
    "attempt_on_graph",
    "by_layers",
    "composes",
    "computed_again",
    "drawn",
    "known_of",
    "run",
    "run_chain",
]
