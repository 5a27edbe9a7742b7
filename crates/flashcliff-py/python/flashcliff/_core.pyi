"""The compiled half of flashcliff. Use the package instead: what takes addresses here checks no
memory."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

__version__: str
CUDA: bool
"""Whether this build has CUDA kernels."""

View = tuple[int, tuple[int, ...], str]
"""A contiguous tensor: address, shape, and ``f32``, ``f64``, ``bf16`` or ``f16``."""
Space = tuple[int, int]
"""Memory: address and bytes."""
Place = tuple[int, int, bool] | None
"""The CPU, or a GPU: its number, the address of a stream, whether matrix products of float32 may
use TF32."""
Grades = list[int] | tuple[int, ...] | None
"""The grades that an operand carries; ``None`` is all."""

class UnsupportedError(NotImplementedError):
    """There is no such operator between these grades, in so many dimensions, or on the device."""

class CudaError(RuntimeError):
    """CUDA cannot be used, or a call of it failed."""

class Algebra:
    def __new__(cls, p: int, q: int, r: int) -> Algebra: ...
    @property
    def name(self) -> str: ...
    @property
    def is_compiled(self) -> bool: ...
    @property
    def blade_names(self) -> list[str]: ...
    @property
    def blade_grades(self) -> list[int]: ...
    @property
    def blade_norms(self) -> list[int]: ...
    def paths(self, left: Grades = None, right: Grades = None) -> list[tuple[int, int, int]]: ...
    def terms(self, kind: str) -> list[tuple[int, int, int, int]]: ...
    def reachable(self, kind: str, left: Grades = None, right: Grades = None) -> list[int]: ...
    def equivariant_maps(self, group: str) -> list[tuple[int, int, list[tuple[int, int, int]]]]: ...

class Slots:
    """Entries of dictionaries, each with the object that it had when this was made; dictionaries with their sizes, objects with their
    classes. All questions are asked at once, as each call of a block needs hundreds."""

    def __new__(
        cls,
        owners: list[dict[str, Any]],
        names: list[str],
        sizes: list[dict[Any, Any]] = ...,
        objects: list[Any] = ...,
    ) -> Slots: ...
    def are_same(self) -> bool: ...
    def values(self) -> list[Any]: ...

class TokenGeometry:
    """The algebra, the group, the products and the norms of the layers of a :class:`Network`."""

    def __new__(
        cls,
        algebra: Algebra,
        group: str,
        *,
        vectors: bool,
        unit_maps: bool,
        join: bool,
        distances: bool,
        bivectors: bool,
        head_norm: bool,
    ) -> TokenGeometry: ...

Channels = tuple[int, int]
"""Channels of multivectors, and of scalars."""

Axis = int | str
"""A size, or the rows of an axis: ``rows``, ``edges``, ``graphs``, or ``others 0`` and so on for a further set."""

class Network:
    """A network, which grows by a step with each call. Values are numbers; a value of tokens is a matrix ``[rows, blades * multivectors +
    scalars]``, an item in a row: its multivectors blade by blade, then its scalars. Relations are numbers, too."""

    def __new__(cls) -> Network: ...
    def tokens(self, name: str, blades: int, channels: Channels, context: bool = False) -> int:
        """An input of tokens, or of tokens of the context, to which cross-attention attends."""
    def rows(self, name: str) -> int:
        """An input with a number for each item: the reference of joins."""
    def mask(
        self, name: str, heads: int, ones: tuple[bool, bool, bool], context: bool = False
    ) -> int:
        """An input ``[samples or 1, heads or 1, items or 1, keys]`` that is added to logits; ``ones``: which of the first three
        axes have the length 1."""
    def parameter(self, name: str, shape: Sequence[int]) -> int: ...
    def linear(
        self,
        geometry: TokenGeometry,
        x: int,
        input: Channels,
        layers: Sequence[Channels],
        parameters: Sequence[Mapping[str, int]],
        keeps_scalars: bool = False,
    ) -> int:
        """Linear layers that share an input, whose outputs lie side by side. Each has its parameters by the names of the state dict; all
        layers have biases, or none has. With ``keeps_scalars`` the layers have no scalar outputs, and the scalars of the input follow
        theirs."""
    def norm(
        self,
        geometry: TokenGeometry,
        x: int,
        channels: Channels,
        eps: float,
        gains: tuple[int | None, int | None],
    ) -> int:
        """The invariant norm, times gains where there are some: ``[channels, grades]`` of multivectors, ``[scalars]`` of scalars."""
    def gate(
        self, geometry: TokenGeometry, x: int, channels: Channels, functions: tuple[str, str]
    ) -> int:
        """Multivectors times a function of their scalar blade, and a function of scalars, by their names."""
    def dropout(
        self, geometry: TokenGeometry, x: int, channels: Channels, p: float, place: int
    ) -> int:
        """Dropout of grades, or of vectors. ``place`` is its number among the dropouts of a call."""
    def products(
        self, geometry: TokenGeometry, x: int, each: int, scalars: int, reference: int | None = None
    ) -> int:
        """Geometric products, and joins, of factors of so many channels that lie side by side."""
    def lanes(
        self,
        operator: Operator,
        x: int,
        blades: int,
        each: Channels,
        parameters: Sequence[int] = (),
    ) -> int:
        """An operator of a program. Its multivectors are neighbouring channels of the tokens, so many each, and so are its scalars beside
        multivectors; in the result too."""
    def attention(
        self,
        geometry: TokenGeometry,
        x: int,
        heads: int,
        head: Channels,
        *,
        shared: bool,
        context: int | None = None,
        mask: int | None = None,
        log_weights: int | None = None,
        rotary_base: int | None = None,
    ) -> int:
        """Attention of queries, keys and values side by side, whose head is the fastest index of a channel; or of queries to keys and
        values of a context. The head is the slowest index of a channel of the result."""
    def head_gains(
        self, geometry: TokenGeometry, x: int, channels: Channels, heads: int, gains: int
    ) -> int:
        """Tokens of heads times a factor of each head."""
    def beside(
        self, blades: int, x: int, channels: Channels, extra: int, extra_channels: Channels
    ) -> int:
        """The channels of tokens, then the channels of other tokens."""
    def frames(
        self, geometry: TokenGeometry, x: int, channels: Channels, frames: int, inverse: bool
    ) -> int:
        """Multivectors in the frame of each token, a matrix of vectors among other tokens, row by row; with ``inverse`` taken out of it."""
    def components(self, blades: int, x: int, channels: Channels, inverse: bool) -> int:
        """Multivectors, blade by blade, and scalars as scalars; with ``inverse`` scalars as multivectors and scalars of these channels."""
    def sum(self, a: int, b: int, scale: float = 1.0) -> int:
        """The sum of two values, times a factor."""
    def input(self, name: str, axes: Sequence[Axis]) -> int: ...
    def relation(self, name: str, start: str, end: str) -> int:
        """A relation: which row of the second axis each row of the first one belongs to."""
    def gather(self, x: int, relation: int, minus: int | None = None) -> int:
        """For each row what it belongs to, less what it belongs to by a second relation."""
    def segment_sum(self, x: int, relation: int, reduce: str) -> int:
        """The sum over the rows of each target: ``sum``, ``mean`` or ``root_count``."""
    def operator(self, operator: Operator, inputs: Sequence[int]) -> int:
        """An operator on multivectors ``[blades, rows, channels]`` and parameters, in the order of its inputs."""
    def points(self, x: int) -> int:
        """Points ``[rows, points, dim]`` as multivectors ``[1 + dim, rows, points]``, whose scalars are 0."""
    def join(self, parts: Sequence[int], axis: int) -> int: ...
    def split(self, x: int, axis: int, sizes: Sequence[int]) -> list[int]: ...
    def extend_blades(self, x: int, blades: int) -> int:
        """Multivectors with further blades, which are 0."""
    def blade_norm(self, x: int) -> int:
        """The Euclidean norm over blades."""
    def activation(self, x: int, name: str) -> int:
        """``silu`` or ``relu`` of each element."""
    def reverse_axes(self, x: int) -> int:
        """Three axes without rows in reverse order."""
    def block(self) -> None: ...
    def function(self, output: int) -> NetworkFunction: ...

class NetworkFunction:
    """A network with a result, as a function of its inputs and then its parameters."""

    def plan(
        self,
        rows: tuple[int, ...],
        dtype: str,
        wanted: Sequence[bool],
        gpu: tuple[int, bool] | None,
        features: str | None = None,
        again: bool = False,
    ) -> NetworkPlan:
        """The plan for samples, their items and the items of their context, for edges and graphs, and for the rows of up to three further
        sets. ``wanted`` says which inputs and parameters have gradients; ``gpu`` is the number of a GPU and whether products may use TF32,
        or the CPU. ``features`` is another type of features between operators on a GPU; ``again``: blocks
        are computed again in the backward pass. Plans are kept."""
    def save(self, path: str | PathLike[str], dtype: str, parameters: Sequence[int]) -> None:
        """Writes the network with its weights to a file. ``parameters`` are the addresses of contiguous tensors of the type on the CPU."""

Sections = tuple[tuple[list[int], int], tuple[list[int], int]]
"""The boundaries of the sequences of a ragged batch, and their address as int32; the same of its context."""

Relation = tuple[tuple[int, int, int], int, int]
"""The addresses of the targets, starts and order of a relation, all of int32; its rows and its targets."""

class NetworkPlan:
    """Both passes of a function. Tensors are the addresses of contiguous inputs and then parameters, at multiples of 16 bytes."""

    @property
    def shapes(self) -> list[list[int]]:
        """The shapes of the results."""
    @property
    def kept(self) -> int:
        """The bytes that the forward pass keeps for the backward pass."""
    def size(self, backward: bool) -> tuple[int, int]:
        """The bytes that the calls of a pass move, and their floating-point operations."""
    @property
    def spaces(self) -> tuple[int, int]:
        """The bytes of workspace that both passes are lent on a GPU."""
    def forward(
        self,
        tensors: Sequence[int],
        outputs: Sequence[int],
        kept: int,
        space: int,
        stream: int,
        sequences: Sections | None = None,
        draw: int | None = None,
        relations: Sequence[Relation] = (),
    ) -> None: ...
    def backward(
        self,
        tensors: Sequence[int],
        output: int,
        grad_output: int,
        gradients: Sequence[int],
        kept: int,
        space: int,
        stream: int,
        sequences: Sections | None = None,
        draw: int | None = None,
        relations: Sequence[Relation] = (),
    ) -> None:
        """Writes the gradients that are wanted, in order."""

class StoredNetwork:
    """A network of a file, one that the core describes, or a gradient of one. Arguments are the inputs, the parameters, then gradients of
    results."""

    @staticmethod
    def of_json(text: str) -> StoredNetwork: ...
    @staticmethod
    def multivector_neurons(scalars: int, channels: int, layers: int) -> StoredNetwork:
        """MVN's network of charged bodies."""
    @property
    def starts(self) -> list[tuple[list[int], str, float]]:
        """For each parameter its shape in a state dict, ``normal``, ``uniform`` around 0 or ``constant``, and the standard deviation, the
        bound or the number. The parameters of a file have none of these."""
    @property
    def inputs(self) -> list[tuple[str, list[str]]]:
        """The names and axes of inputs."""
    @property
    def parameters(self) -> list[str]: ...
    @property
    def relations(self) -> list[tuple[str, str, str]]:
        """The names of relations, the axes of their rows, and the axes of their targets."""
    def shapes(
        self, sizes: tuple[int, int, int, int, int, tuple[int, int, int]]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """The shapes of arguments and of results, for samples, items, context items, edges, graphs, and rows of further sets."""
    @property
    def outputs(self) -> list[tuple[str, list[str]]]:
        """The names and axes of results; none of a gradient."""
    def function(self) -> NetworkFunction:
        """The function of a network with one result, in two passes."""
    def plan(
        self,
        rows: tuple[int, ...],
        dtype: str,
        wanted: Sequence[bool],
        gpu: tuple[int, bool] | None,
    ) -> NetworkPlan:
        """The plan of all results at once, of one pass, as :meth:`NetworkFunction.plan`. Gradients of results are inputs, in front of the
        parameters. No gradient is wanted."""
    def gradient(self, there: list[bool], wanted: list[bool]) -> tuple[StoredNetwork, list[bool]]:
        """The gradients of some results by some arguments, and for each of these whether there is one."""

def network_file(
    path: str | PathLike[str],
) -> tuple[str, list[tuple[str, list[int], str, bytes]]]:
    """The network of a file as JSON, and its parameters: name, shape, type, elements."""

class Attention:
    """Attention within sequences, on GPUs: of builds with CUDA only."""

    WIDTH: int
    ALIGNED: int
    # The functions are called with what `_ops/attention.py` makes of tensors.
    def forward(self, *arguments: object) -> None: ...
    def backward(self, *arguments: object) -> None: ...

class Segments:
    """Gatherings and sums of segments, on GPUs: of builds with CUDA only."""

    # The functions are called with what `_ops/segments.py` and `_ops/largest.py` make of tensors.
    def run(self, *arguments: object) -> None: ...
    def run_kept(self, *arguments: object) -> None: ...

class Messages:
    """An operator on the rows of relations, on GPUs: of builds with CUDA only."""

    def __init__(
        self,
        operator: Operator,
        inputs: list[tuple[int | None, bool]],
        to: int | None,
        sums: list[bool],
    ) -> None: ...
    # The function is called with what `_ops/messages.py` makes of tensors.
    def run(self, *arguments: object) -> None: ...

def run_messages(
    operator: Operator,
    form: tuple[list[tuple[int | None, bool]], int | None, list[bool]],
    tensors: tuple[list[tuple[tuple[int, int, int], int]], list[tuple[int, int]]],
    relations: list[tuple[tuple[int, ...], int]],
    sizes: tuple[int, int],
    is_f64: bool,
) -> None:
    """Computes an operator on rows, on the CPU. A form has the ends of inputs, the end of results, and for each result whether it is summed
    over channels. Inputs are addresses with the strides of components and items, and lengths. Results are addresses and lengths. Relations
    are the addresses of lists, and the number of targets. Sizes are rows and channels."""

def run_segments(
    sums: bool,
    places: tuple[int, int],
    relations: tuple[tuple[int, ...], tuple[int, ...] | None],
    sizes: tuple[int, int, int, int],
    reduction: str,
    is_f64: bool,
) -> None:
    """Gathers rows, or sums segments, on the CPU, from the first address to the second. A relation is the addresses of its lists. The
    sizes are the sizes of the axes before rows, of rows, of targets, and of the axes after rows."""

def run_kept(
    what: str,
    places: tuple[int, int, int],
    relation: tuple[int, ...],
    sizes: tuple[int, int, int, int],
    is_f64: bool,
) -> None:
    """Finds the rows with the largest values of segments on the CPU (``"largest"``), reads what targets keep of their rows (``"pick"``), or
    is the adjoint of that (``"place"``), from the first address to the second. The third is that of the rows that targets keep."""

def lion_step(
    members: list[tuple[int, int, int, int]],
    is_f64: bool,
    numbers: tuple[float, float, float],
    betas: tuple[float, float],
) -> None:
    """A step of Lion on the CPU. A member is the addresses of parameter, gradient and mean, and the elements; numbers are the learning
    rate, the factor of gradients, and the decay."""

class Optimiser:
    """AdamW or Lion over some parameters on one GPU: of builds with CUDA only. A member is the addresses of parameter, means, step
    count and average, 0 for what there is not; the elements, the group, and the type."""

    def __new__(
        cls, is_lion: bool, members: list[tuple[list[int], int, int, str]]
    ) -> Optimiser: ...
    NORM: int
    @property
    def workspace_bytes(self) -> int: ...
    # Called with what `_ops/optim.py` makes of tensors and options.
    def step(self, *arguments: object) -> None: ...

class Program:
    """A program that is being written. Values have numbers; a multivector is its values and its grades."""

    def __new__(cls, algebra: Algebra, name: str, formula: str) -> Program: ...
    def input(self, name: str, grades: list[int]) -> list[int]: ...
    def scalars(self, name: str) -> int: ...
    def numbers(self, name: str, count: int) -> list[int]: ...
    def param(self, name: str, count: int, of_scalars: bool) -> list[int]: ...
    def constant(self, value: float) -> int: ...
    def eps(self) -> int: ...
    def apply(self, function: str, of: list[int]) -> int: ...
    def sum(self, of: int) -> int: ...
    def count(self, of: int) -> int: ...
    def mean(self, of: int) -> int: ...
    def cut(self, of: list[int]) -> list[int]: ...
    def product(
        self, kind: str, x: tuple[list[int], list[int]], y: tuple[list[int], list[int]]
    ) -> tuple[list[int], list[int]]: ...
    def weighted_product(
        self, x: tuple[list[int], list[int]], y: tuple[list[int], list[int]], w: list[int]
    ) -> tuple[list[int], list[int]]: ...
    def signs(self, involution: str, grades: list[int]) -> list[int]: ...
    def duals(self, inverse: bool) -> list[tuple[int, int]]: ...
    def output(self, name: str, of: tuple[list[int], list[int]]) -> None: ...
    def digest(self) -> str: ...
    def operator(self, gate: str, eps: float) -> Operator: ...

def rotor_operator(algebra: Algebra, map: str, odd: bool) -> Operator | None:
    """A map of rotors on float64: ``exp``, ``log``, ``inverse``, ``normalized``, ``between`` or ``along``. ``None`` if the algebra has no
    blades of a grade that it reads or writes."""

class Operator:
    """An operator by its name in the table, with settings by name; those not given have their
    defaults."""

    def __new__(
        cls,
        name: str,
        algebra: Algebra,
        settings: dict[str, str | float | bool | Grades],
        block_bytes: int | None = None,
    ) -> Operator: ...
    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> list[tuple[str, tuple[int | str, ...]]]:
        """The inputs: a name and axes each, where an axis is a size, ``batch``, ``in``, ``out`` or
        ``scalars``."""
    @property
    def outputs(self) -> list[tuple[str, tuple[int | str, ...]]]:
        """The outputs, as the inputs."""
    def flops(self, batch: int, inputs: int, outputs: int) -> tuple[int, int]:
        """The floating-point operations of a forward and of a backward pass, as the kernels do them."""
    def expressions(
        self,
    ) -> tuple[list[tuple[str, list[int], str, float]], list[int]] | None:
        """The expressions of the program, operands first, as name, positions of operands, name of an argument, and number: a
        constant, or which element of the argument. Then the positions of the expressions of the output. ``None`` for operators
        that are not programs."""
    def plan_strided(
        self,
        inputs: list[View],
        place: tuple[int, int, bool],
    ) -> tuple[list[tuple[int, ...]], int]:
        """What a run on tensors with strides needs; only in builds for CUDA, for operators that are one kernel."""
    def run_strided(
        self,
        inputs: list[View],
        strides: list[tuple[int, int]],
        outputs: list[tuple[int, int, int]],
        workspace: Space,
        place: tuple[int, int, bool],
    ) -> None: ...
    def measured_symmetry(self) -> str:
        """The transformations that the operator is found to commute with, in words."""
    def gradient(self) -> Operator:
        """The gradient: from the inputs and the gradients of the outputs to the gradients of the inputs."""
    def tangent(self) -> Operator:
        """The directional derivative: from the inputs and their tangents to the tangents of the outputs."""
    def selecting(self, wanted: list[bool]) -> Operator:
        """The operator with those outputs that are wanted."""
    def plan_run(self, inputs: list[View], place: Place) -> tuple[list[tuple[int, ...]], int]:
        """What a run needs: the shape of each output, and the bytes of workspace."""
    def run(
        self, inputs: list[View], outputs: list[int | None], workspace: Space, place: Place
    ) -> None: ...
    def triton(self) -> tuple[str, list[tuple[str, int, bool]], int, list[list[int]]] | None:
        """The operator as Triton kernels: the text of a module, the kernels for rows of several blocks (name, width, whether an instance
        has one block), how many numbers these keep for each row, and for each total of rows the numbers that it sums. ``None`` for
        operators that are not programs of lanes."""
    @property
    def content(self) -> str:
        """The operator as text: what it computes, without this process. A derivative has none unless it is a program."""
    @staticmethod
    def of_content(content: str) -> Operator:
        """The operator of such a text."""
    @property
    def has_matrix_products(self) -> bool:
        """Whether most operations belong to matrix products over channels."""
    @property
    def output(self) -> tuple[int | str, ...]:
        """The axes of the output."""
    @property
    def native(self) -> int:
        """The address by which C functions know the operator, as long as it lives."""
    @property
    def row_sums(self) -> int:
        """The sums that forward saves for each batch element."""
    @property
    def kept(self) -> tuple[int | str, ...] | None:
        """The axes of the tensor that forward keeps at the start of what it saves, if there is
        one."""
    def plan(
        self,
        inputs: list[View],
        backward: bool,
        place: Place,
        wanted: list[bool] | None = None,
    ) -> tuple[tuple[int, ...], int, int]:
        """What a pass needs: shape of the output, elements to save, bytes of workspace. On the CPU it raises
        ``MemoryError`` if there is no room. ``wanted`` says which gradients are made; all if ``None``."""
    def no_room(
        self,
        inputs: list[View],
        backward: bool,
        place: tuple[int, int, bool],
        wanted: list[bool] | None = None,
        available: int | None = None,
    ) -> str:
        """The message for a pass on a GPU that found no memory while so many bytes were available."""
    def forward(
        self, inputs: list[View], output: int, saved: int, workspace: Space, place: Place
    ) -> None: ...
    def backward(
        self,
        inputs: list[View],
        output: int,
        saved: int,
        grad_output: int,
        grads: list[int | None],
        workspace: Space,
        place: Place,
    ) -> None: ...
    # On a GPU, of builds with CUDA only. Tensors are an address, the stride of blades and that of rows; ``sizes`` are
    # batch, channels and the type.

class Array:
    """Memory that operators write and other libraries take over by DLPack."""

    def __new__(cls, shape: list[int], dtype: str, device: int | None) -> Array: ...
    @staticmethod
    def pooled(bytes: int) -> Array:
        """Bytes on the CPU with any contents, from a pool to which they go back."""
    @property
    def address(self) -> int: ...
    def synchronize(self) -> None: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...

def read_dlpack(capsule: Any) -> tuple[int, tuple[int, ...], str, tuple[int, int], bool]:
    """What a capsule holds: address, shape, type, device by DLPack, whether it is contiguous."""

def shipped() -> list[tuple[int, int, int]]: ...
def addresses(
    tensors: Sequence[Any], kinds: tuple[type, ...], shapes: Sequence[Any] | None = None
) -> list[int] | None:
    """The addresses of tensors, 0 for ``None``; no list unless all are contiguous tensors of these classes with all of their memory, of one
    type on one device, and of these shapes."""

def tier() -> str: ...
def check_room(what: str, bytes: int, rows: int) -> None:
    """Raises ``MemoryError`` if the system has no room for the bytes that a call takes for some rows."""

def jax_handlers() -> list[tuple[str, str, Any]]:
    """The handlers that JAX registers: name, platform, capsule."""

def jax_layout() -> tuple[list[tuple[str, str, int, int]], list[tuple[str, int]]]:
    """What the handlers say of XLA's C interface, by the names of its header: fields with offsets and sizes, and constants."""

def jax_prepare(digest: str, target: str, kind: str, inputs: list[View], ordinal: int) -> int:
    """Loads the kernels of a call on a GPU, and gives the bytes of workspace that it needs there."""

def jax_prepare_network(
    digest: str, target: str, ordinal: int | None
) -> tuple[int, tuple[int, int]]:
    """Plans a network on a GPU, and gives the bytes of workspace that a call needs there."""

def native_table() -> int:
    """The address of the C functions that the compiled call path uses."""

def get_num_threads() -> int:
    """The number of threads that operators on the CPU use."""

def set_num_threads(threads: int) -> None:
    """Makes operators on the CPU use a number of threads. Results do not depend on it. The default
    is ``RAYON_NUM_THREADS``, else ``OMP_NUM_THREADS``, else the number of CPUs, and never more than
    ``torch.get_num_threads()``."""

def after_fork() -> None: ...
