"""The repositories and models that `accelerate_repositories.py` accelerates: small, with random weights."""

import dataclasses
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Mapping, Sequence

BATCH, ITEMS = 4, 16


@dataclasses.dataclass(frozen=True)
class Source:
    """A repository at a commit, or a wheel of PyPI."""

    name: str
    revision: str
    folders: Sequence[str] = ()
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    entries: str = ""
    wheel: bool = False
    options: Sequence[str] = ("--no-deps",)

    def described(self):
        return f"{self.name}=={self.revision}" if self.wheel else f"{self.name}@{self.revision}"


@dataclasses.dataclass(frozen=True)
class Model:
    """How to build a model, and inputs of it for a type."""

    name: str
    build: Callable
    inputs: Callable


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    sources: Sequence[Source]
    models: Callable
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


def gatr_like(*, batch=(BATCH, ITEMS), mv=2, s=3):
    """Inputs of networks of multivectors."""

    def inputs(dtype):
        import torch

        torch.manual_seed(1)
        return [torch.randn(*batch, mv, 16, dtype=dtype), torch.randn(*batch, s, dtype=dtype)]

    return inputs


def shapes(*sizes):
    """Inputs of these shapes."""

    def inputs(dtype):
        import torch

        torch.manual_seed(1)
        return [torch.randn(*size, dtype=dtype) for size in sizes]

    return inputs


class Anything(type):
    """A kind of classes that have any attribute."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for libraries that models import and do not use here: any name of them is a class."""

    def __init__(self, *names):
        self.names = names
        sys.meta_path.append(self)

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []

        def found(name):
            if name.startswith("__"):
                raise AttributeError(name)
            kind = Anything(name, (), {"__init__": lambda *_, **__: None})
            setattr(module, name, kind)
            return kind

        module.__getattr__ = found
        return module

    def exec_module(self, module):
        pass


SIZES = dict(in_mv_channels=2, out_mv_channels=1, hidden_mv_channels=8)
SIZES |= dict(in_s_channels=3, out_s_channels=2, hidden_s_channels=16, num_blocks=2)


def gatr_networks():
    Absent("xformers")
    import gatr

    options = dict(attention=gatr.SelfAttentionConfig(num_heads=4), mlp=gatr.MLPConfig())
    yield Model("GATr", lambda: gatr.GATr(**SIZES, **options), gatr_like())
    more = dict(reinsert_mv_channels=(1,), reinsert_s_channels=(0, 2))
    rotary = options | dict(attention=gatr.SelfAttentionConfig(num_heads=2, multi_query=False, pos_encoding=True))
    yield Model("GATr, rotary, reinserted", lambda: gatr.GATr(**SIZES, **rotary, **more), gatr_like())
    yield Model("AxialGATr", lambda: gatr.AxialGATr(**SIZES, **options), gatr_like(batch=(2, 5, 6)))


def gatr_hybrid():
    """A model of single layers of GATr within custom modules."""
    Absent("xformers")
    import gatr
    import torch
    from gatr.layers.gatr_block import GATrBlock

    class Pooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            attention, mlp = gatr.SelfAttentionConfig(num_heads=4), gatr.MLPConfig()
            self.first = gatr.layers.EquiLinear(2, 8, 3, 16)
            self.block = GATrBlock(8, 16, attention, mlp)
            self.norm, self.last = gatr.layers.EquiLayerNorm(), gatr.layers.EquiLinear(8, 1, 16, 2)

        def forward(self, mv, s):
            mean = mv.mean((1, 2), keepdim=True)
            mv, s = self.norm(*self.block(*self.first(mv, s), reference_mv=mean))
            mv, s = self.last(2 * mv, s)
            return mv.mean(1), s.mean(1)

    yield Model("own model of layers", Pooled, gatr_like())


def lgatr(second):
    def models():
        import lgatr

        attention = {"num_heads": 4}
        if second:
            mlp, mask = dict(nonlinearity="silu", mlp_ratio=2), dict(mv_channels_cond=3, s_channels_cond=4)
        else:
            mlp = dict(activation="silu", increase_hidden_channels=2)
            mask = dict(condition_mv_channels=3, condition_s_channels=4)
        attention_config, mlp_config = lgatr.SelfAttentionConfig(**attention), lgatr.MLPConfig(**mlp)
        options = dict(attention=attention_config, mlp=mlp_config)
        yield Model("LGATr", lambda: lgatr.LGATr(**SIZES, **options), gatr_like())
        cross = options | dict(crossattention=lgatr.CrossAttentionConfig(**attention)) | mask
        sizes = (BATCH, ITEMS, 2, 16), (BATCH, 6, 3, 16), (BATCH, ITEMS, 3), (BATCH, 6, 4)
        yield Model("ConditionalLGATr", lambda: lgatr.ConditionalLGATr(**SIZES, **cross), shapes(*sizes))
        slim = dict(in_v_channels=2, out_v_channels=1, hidden_v_channels=8, num_heads=4)
        slim |= {name: size for name, size in SIZES.items() if "mv" not in name}
        sizes = (BATCH, ITEMS, 2, 4), (BATCH, ITEMS, 3)
        yield Model("LGATrSlim", lambda: lgatr.LGATrSlim(**slim), shapes(*sizes))
        cond = slim | {name.replace("mv", "v"): size for name, size in mask.items()}
        sizes = (BATCH, ITEMS, 2, 4), (BATCH, 6, 3, 4), (BATCH, ITEMS, 3), (BATCH, 6, 4)
        yield Model("ConditionalLGATrSlim", lambda: lgatr.ConditionalLGATrSlim(**cond), shapes(*sizes))
        yield Model("own model of layers", chained(lgatr_layers, second), gatr_like())
        first = (BATCH, ITEMS, 4, 2) if second else (BATCH, ITEMS, 2, 4)
        yield Model("own model of slim layers", chained(slim_layers, second), shapes(first, (BATCH, ITEMS, 3)))

    return models


def chained(layers, second):
    """Builds a custom module that applies layers of pairs one after the other."""

    def build():
        import torch

        class Chained(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.steps = torch.nn.ModuleList(layers(second))

            def forward(self, a, b):
                for step in self.steps:
                    a, b = step(a, scalars=b)
                return 2 * a, b + 1

        return Chained()

    return build


def lgatr_layers(second):
    import lgatr
    from lgatr.layers.attention.self_attention import SelfAttention
    from lgatr.layers.layer_norm import EquiLayerNorm
    from lgatr.layers.linear import EquiLinear
    from lgatr.layers.mlp.geometric_bilinears import GeometricBilinear
    from lgatr.layers.mlp.nonlinearities import ScalarGatedNonlinearity

    group = (lgatr.PrimitivesConfig(),) if second else ()
    sizes = dict(in_mv_channels=8, out_mv_channels=8, in_s_channels=16, out_s_channels=16)
    attention = SelfAttention(lgatr.SelfAttentionConfig(num_heads=4, **sizes), *group)
    scalars = dict(in_s_channels=3, out_s_channels=16), dict(in_s_channels=16, out_s_channels=16)
    yield EquiLinear(2, 8, *group, **scalars[0])
    yield EquiLayerNorm()
    yield attention
    yield GeometricBilinear(8, 8, *group, **scalars[1])
    yield ScalarGatedNonlinearity("gelu")


def slim_layers(second):
    if second:
        from lgatr.layers import slim_layers as found

        linear, unit, attention = found.SlimLinear, found.SlimGLU, found.SlimSelfAttention
        norm = found.SlimRMSNorm(8, 16)
    else:
        from lgatr.nets import lgatr_slim as found

        linear, unit, attention = found.Linear, found.GatedLinearUnit, found.SelfAttention
        norm = found.RMSNorm()
    yield linear(2, 8, 3, 16)
    yield norm
    yield attention(8, 16, 4)
    yield unit(8, 6, 16, 12)


def lorentz_gatr():
    Absent("xformers")
    import gatr

    def build(**more):
        attention = gatr.SelfAttentionConfig(num_heads=4)
        return gatr.GATr(**SIZES, attention=attention, mlp=gatr.MLPConfig(), **more)

    yield Model("GATr of the Lorentz group", build, gatr_like())
    yield Model("GATr with two norms", lambda: build(double_layernorm=True), gatr_like())


def cgenn_of_lorentz_gatr():
    Absent("xformers", "clifford")
    from experiments.baselines.cgenn import cgenn, cliffordalgebra, fcgp

    def build():
        import torch

        algebra = cliffordalgebra.CliffordAlgebra((1.0, -1.0, -1.0, -1.0))
        return torch.nn.Sequential(
            fcgp.FullyConnectedSteerableGeometricProductLayer(algebra, 3, 6),
            cgenn.MVSiLU(algebra, 6),
            cgenn.SteerableGeometricProductLayer(algebra, 6),
            cgenn.MVLayerNorm(algebra, 6),
            cgenn.MVLinear(algebra, 6, 2),
        )

    yield Model("layers of CGENN's copy", build, shapes((32, 3, 16)))


def mlpf():
    """A copy of GATr whose layers are given their tables."""
    import torch
    from src.gatr_v111.layers.attention.config import SelfAttentionConfig
    from src.gatr_v111.layers.mlp.config import MLPConfig
    from src.gatr_v111.nets.gatr import GATr
    from src.gatr_v111.primitives.attention import _build_dist_basis
    from src.gatr_v111.primitives.invariants import compute_inner_product_mask
    from src.gatr_v111.primitives.linear import _compute_pin_equi_linear_basis

    class Typed(torch.nn.Module):
        """The network, whose tables are no buffers, and become of a type with it."""

        def __init__(self):
            super().__init__()
            products, cpu = geometric_products(), torch.device("cpu")
            q, k = _build_dist_basis(cpu, torch.float32)
            self.net = GATr(
                **SIZES,
                attention=SelfAttentionConfig(num_heads=4),
                mlp=MLPConfig(),
                basis_gp=products,
                basis_gp_mask=torch.arange(16)[compute_inner_product_mask(products).bool()],
                basis_outer=outer_products(),
                basis_pin=_compute_pin_equi_linear_basis(device=cpu, dtype=torch.float32),
                basis_q=q,
                basis_k=k,
            )

        def _apply(self, function, recurse=True):
            for inner in self.modules():
                tables = {n: t for n, t in vars(inner).items() if isinstance(t, torch.Tensor)}
                vars(inner).update({name: function(table) for name, table in tables.items()})
            return super()._apply(function, recurse)

        def forward(self, mv, s):
            return self.net(mv, s)

    yield Model("gatr_v111", Typed, gatr_like(batch=(ITEMS,)))


def geometric_products():
    """The products of the blades of Cl(3,0,1), in GATr's order: `table[i, j, k]` is what blade i has of j times k."""
    return _products(lambda a, b, squares: all(squares))


def outer_products():
    return _products(lambda a, b, squares: not set(a) & set(b))


def _products(kept):
    import itertools

    import torch

    blades = [b for n in range(5) for b in itertools.combinations(range(4), n)]
    table = torch.zeros(16, 16, 16)
    for j, a in enumerate(blades):
        for k, b in enumerate(blades):
            if not kept(a, b, [e != 0 for e in set(a) & set(b)]):
                continue
            swaps = sum(x > y for x in a for y in b)
            table[blades.index(tuple(sorted(set(a) ^ set(b)))), j, k] = (-1) ** swaps
    return table


def erwin():
    """A copy of GATr under another name."""
    Absent("xformers")
    from gatr_utils.layers.attention.config import SelfAttentionConfig
    from gatr_utils.layers.mlp.config import MLPConfig
    from gatr_utils.nets.gatr import GATr

    options = dict(attention=SelfAttentionConfig(num_heads=4), mlp=MLPConfig())
    yield Model("GATr in gatr_utils", lambda: GATr(**SIZES, **options), gatr_like())


def lab_gatr():
    Absent("xformers", "torch_geometric", "torch_scatter", "torch_cluster", "robust_laplacian", "scipy", "pyvista")
    import torch
    from lab_gatr.models.lab_gatr import CrossAttentionHatchling
    from lab_gatr.nn.mlp.geometric_algebra import MLP

    class Pooled(torch.nn.Module):
        """Tokens pooled from points by cross-attention, and an MLP, as in LaB-GATr's tokeniser."""

        def __init__(self):
            super().__init__()
            self.pool = CrossAttentionHatchling(2, 2, 8, 3, 3, 3, 2, num_latent_channels=8)
            self.mlp = MLP((8, 8, 6, 1), num_input_scalars=3, num_output_scalars=2)

        def forward(self, mv, s):
            mv, s = self.pool(mv, mv[:, ::2], s, s[:, ::2])
            return self.mlp(mv, s)

    yield Model("CrossAttentionHatchling and MLP", Pooled, gatr_like())


def gafl():
    """Custom layers beside layers of GATr."""
    Absent("xformers", "tqdm", "scipy", "tree", "biotite", "Bio", "pandas", "hydra", "omegaconf", "lightning")
    import torch
    from gafl.models.gafl.pga_utils import PairwiseGeometricBilinear
    from gatr.layers.linear import EquiLinear

    class Pairs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.pairs = EquiLinear(2, 6), PairwiseGeometricBilinear(6, 4, 8)

        def forward(self, mv, s):
            mv, _ = self.first(mv)
            return self.pairs(mv, mv.flip(1))

    yield Model("PairwiseGeometricBilinear", Pairs, gatr_like())


def cgenn():
    Absent("yaml", "wandb", "torchmetrics", "tqdm", "sklearn", "scipy", "matplotlib")
    import torch
    from algebra.cliffordalgebra import CliffordAlgebra
    from models.modules.fcgp import FullyConnectedSteerableGeometricProductLayer as Connected
    from models.modules.mvlayernorm import MVLayerNorm
    from models.modules.mvsilu import MVSiLU
    from models.nbody_cggnn import CEMLP
    from models.o5_cgmlp import O5CGMLP

    def space():
        return CliffordAlgebra((1.0, 1.0, 1.0))

    def layers():
        algebra = space()
        return torch.nn.Sequential(Connected(algebra, 3, 6), MVSiLU(algebra, 6), MVLayerNorm(algebra, 6))

    class Regression(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = O5CGMLP(0.0, 1.0)

        def forward(self, x):
            return self.inner._forward(x)

    yield Model("layers", layers, shapes((32, 3, 8)))
    yield Model("CEMLP", lambda: CEMLP(space(), 3, 8, 4), shapes((32, 3, 8)))
    yield Model("O5CGMLP", Regression, shapes((32, 2, 32)))


def flash_clifford():
    from modules.baseline import Layer

    for dims in (2, 3):
        for connected in (False, True):
            name = f"Layer, {dims}-D{', fully connected' if connected else ''}"
            build = lambda dims=dims, connected=connected: Layer(8, dims, use_fc=connected)
            yield Model(name, build, shapes((2**dims, 32, 8)))


GATR = Source(
    "Qualcomm-AI-research/geometric-algebra-transformer", "6afc26f26b8fcf51136ae8c1d264a36e14b6e497", ("gatr",)
)
OLD_GATR = dataclasses.replace(GATR, revision="87fa7d0c5cec5d874b13814816c628843e348866")
LORENTZ = Source("heidelberg-hepml/lorentz-gatr", "35aca2ac4921b8092b5a14f40deed11e7c015e53", ("gatr", "experiments"))
CLIFFORD = Source("clifford", "1.5.1", wheel=True, options=())
LGATR = Source(
    "heidelberg-hepml/lgatr",
    "c908990e1e0464382a7dda26d0a47e5a24c48252",
    ("lgatr",),
    {"lgatr": "1.4.4"},
    "[lgatr.primitives.attention_backends]\nnative = lgatr.primitives.attention_backends.native\n",
)
MLPF = Source("selvaggi/mlpf", "30c60a563faeeb3e29542e1ebdfe22e2b4dc3d62", ("src/gatr_v111",))
ERWIN = Source("Benjaminbva/DL2_erwin", "3ce412c79179676689e733a2b6a1743393551ffa", ("gatr_utils",))
LAB = Source("sukjulian/lab-gatr", "43379fddb7583d5a8527fc3e104b7c11f8f0afb9", ("lab_gatr",))
GAFL = Source("hits-mli/gafl", "2dfc603fa6ff569d55409c3667500fcfeec8a01e", ("gafl",))
CGENN = Source(
    "DavidRuhe/clifford-group-equivariant-neural-networks",
    "8482b06b71712dcea2841ebe567d37e7f8432d27",
    ("algebra", "models", "engineer"),
)
FLASH = Source("maxxxzdn/flash-clifford", "8800de0c67037b8ff5473262254a9a7986e36e5e", ("modules", "ops", "tests"))

CASES = [
    Case("gatr", [GATR], gatr_networks),
    Case("gatr 1.2", [OLD_GATR], gatr_networks),
    Case("layers of gatr", [GATR], gatr_hybrid),
    Case("lgatr 1.4.4", [LGATR], lgatr(second=False)),
    Case("lgatr 2.0.0", [Source("lgatr", "2.0.0", wheel=True)], lgatr(second=True)),
    # Its tables come from a library whose tables are sparse.
    Case("lorentz-gatr", [LORENTZ, CLIFFORD], lorentz_gatr, {"SPARSE_AUTO_DENSIFY": "1"}),
    Case("cgenn of lorentz-gatr", [LORENTZ], cgenn_of_lorentz_gatr),
    Case("mlpf", [MLPF], mlpf),
    Case("DL2_erwin", [ERWIN], erwin),
    Case("lab-gatr", [LAB, GATR], lab_gatr),
    Case("gafl", [GAFL, OLD_GATR], gafl),
    Case("cgenn", [CGENN], cgenn),
    Case("flash-clifford", [FLASH], flash_clifford),
]
