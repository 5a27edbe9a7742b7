"""Wrong options of transformers, of layers in local frames and of models. A string or a number is not a boolean, and no option that
a network does not read is taken unseen."""

from functools import partial

from misuse import R3, refused

from flashcliff import Algebra, nn
from flashcliff.nn import convolution, models
from flashcliff.nn import transformer as T

PGA = Algebra(3, 0, 1)
COUNT, FLAG, NUMBER = ": expected an integer, got ", ": expected True or False, got ", ": expected a number, got "


def network(**options):
    return partial(T.GATransformer, PGA, 1, 1, 4, 2, 1, 4, **options)


def block(**options):
    return partial(T.Block, PGA, 4, 4, **options)


def self_attention(**options):
    return partial(T.SelfAttention, PGA, 4, 4, **options)


def cross_attention(scalars=4, **options):
    return partial(T.CrossAttention, PGA, 4, scalars, 4, 4, **options)


ROWS = [
    # Networks and blocks
    refused("half a block", network(blocks=1.5), TypeError, "blocks" + COUNT + "1.5"),
    refused("blocks below zero", network(blocks=-1), ValueError, "blocks: expected at least 0, got -1"),
    refused("half a block in frames", partial(T.FrameTransformer, R3, 1, 1, 4, blocks="2"), TypeError, "blocks" + COUNT + "'2'"),
    refused("blocks in frames below zero", partial(T.FrameTransformer, R3, 1, 1, 4, blocks=-1), ValueError, "blocks: expected at least 0"),
    refused("a string as checkpoint_blocks", network(checkpoint_blocks="no"), TypeError, "checkpoint_blocks" + FLAG + "'no'"),
    refused("a string as shared_norm", network(shared_norm="False"), TypeError, "shared_norm" + FLAG),
    refused("a number as attention", network(attention=8), TypeError, "attention: expected a mapping of options by name, got 8"),
    refused("zero as attention of a block", block(attention=0), TypeError, "attention: expected a mapping"),
    refused("a list as attention in frames", partial(T.FrameBlock, R3, 4, attention=[8]), TypeError, "attention: expected a mapping"),
    refused("a number as attention of a pooling block", partial(T.CrossBlock, PGA, 4, 4, 4, 4, attention=8), TypeError, "attention: expected a mapping"),
    refused("a number as cross-attention", partial(T.ConditionalBlock, PGA, 4, 4, 4, 4, cross_attention=8), TypeError, "cross_attention: expected a mapping"),
    refused("a channel that is seen again, not in a list", network(reinsert_channels=0), TypeError, "reinsert_channels: expected integers as an iterable, got 0"),
    refused("a scalar that is seen again, not in a list", network(reinsert_scalars=1), TypeError, "reinsert_scalars: expected integers as an iterable, got 1"),
    refused("half a ratio of an MLP", network(mlp_ratio=1.5), TypeError, "mlp_ratio" + COUNT + "1.5"),
    refused("a ratio of zero in frames", partial(T.FrameBlock, R3, 4, 4, mlp_ratio=0), ValueError, "mlp_ratio: expected at least 1, got 0"),
    refused("an MLP of half a layer", block(mlp_layers=0.5), TypeError, "mlp_layers" + COUNT + "0.5"),
    refused("an MLP of a boolean of layers", block(mlp_layers=True), TypeError, "mlp_layers" + COUNT + "True"),
    refused("a boolean as checkpoint", block(checkpoint=True), TypeError, "checkpoint: expected names as an iterable, .*got True"),
    # Attention
    refused("a string as multi_query", self_attention(multi_query="False"), TypeError, "multi_query" + FLAG + "'False'"),
    refused("a number as head_scale", self_attention(head_scale=1), TypeError, "head_scale" + FLAG + "1"),
    refused("a number as head_scale of cross-attention", cross_attention(head_scale=1), TypeError, "head_scale" + FLAG),
    refused("a string as joint", cross_attention(joint="no"), TypeError, "joint" + FLAG + "'no'"),
    refused("a string as head_norm", cross_attention(head_norm="no"), TypeError, "head_norm" + FLAG + "'no'"),
    refused("scalars of queries as a string", cross_attention(scalars="4"), TypeError, "scalars" + COUNT + "'4'"),
    refused("scalars in frames as a list", partial(T.FrameAttention, R3, 4, [4]), TypeError, "scalars" + COUNT),
    refused("a bias in frames as a string", partial(T.FrameAttention, R3, 4, 4, bias="no"), TypeError, "bias" + FLAG),
    refused("a base of positions that nobody reads", self_attention(rotary_base="x"), TypeError, "rotary_base" + NUMBER + "'x'"),
    refused("a base of positions below zero", partial(T.RotaryEncoding, 8, -1), ValueError, "base: expected a finite number above 0, got -1"),
    refused("positions of half a channel", partial(T.RotaryEncoding, 1.5), TypeError, "channels" + COUNT),
    refused("attention of channels below zero", partial(T.GeometricAttention, PGA, -1, 2), ValueError, "channels: expected at least 1"),
    refused("attention of a string of heads", partial(T.GeometricAttention, PGA, 4, "2"), TypeError, "heads" + COUNT),
    # Layers
    refused("an initialisation as a list", partial(T.EquiLinear, PGA, 1, 1, initialization=["small"]), TypeError, "initialization: expected a string"),
    refused("a number as own_bias", partial(T.EquiLinear, PGA, 1, 1, own_bias=0), TypeError, "own_bias" + FLAG + "0"),
    refused("an activation as a list", partial(T.ScalarGate, ["gelu"]), TypeError, "activation: expected a string"),
    refused("no activation of scalars", partial(T.ScalarGate, "gelu", ""), ValueError, "scalar_activation: expected one of relu, .*got ''"),
    refused("an activation of an MLP without gates", partial(T.GeometricMLP, PGA, (4, 4), (0, 0), activation="x"), ValueError, "activation: expected one of"),
    refused("a number as channels of an MLP", partial(T.GeometricMLP, PGA, 4, (2, 2)), TypeError, "channels: expected integers as an iterable, got 4"),
    refused("a string as hidden channels", partial(T.GeometricBilinear, PGA, 4, 4, "8"), TypeError, "hidden_channels" + COUNT),
    # Geometries
    refused("a signature as the algebra of a geometry", partial(T.Geometry, (3, 0, 1)), TypeError, r"algebra: expected a flashcliff.Algebra, got \(3, 0, 1\); geometry_of"),
    refused("a number as a choice of a geometry", partial(T.Geometry, PGA, distances=1), TypeError, "distances" + FLAG + "1"),
    refused("a group that is none", partial(T.Geometry, PGA, group="so"), ValueError, "group: expected one of pin, spin, got 'so'"),
    # Models and layers on grids
    refused("half a class of jets", partial(models.JetTagger, classes=2.5), TypeError, "classes" + COUNT + "2.5"),
    refused("a decoder of channels below zero", partial(models.JetTagger, decoder=-1), ValueError, "decoder: expected at least 1, got -1"),
    refused("dropout of jets as a string", partial(models.JetTagger, dropout="0.2"), TypeError, "dropout" + NUMBER + "'0.2'"),
    refused("dropout of jets that is not a number", partial(models.JetTagger, dropout=float("nan")), ValueError, "dropout: expected a probability"),
    refused("a width of regression as a string", partial(models.Regression, width="8"), TypeError, "width" + COUNT + "'8'"),
    refused("a norm that starts without a number", partial(nn.GradeNorm, R3, 4, float("nan")), ValueError, "init: expected a finite number, got nan"),
    refused("a blade of a bias, not in a list", partial(convolution.CliffordSteerableConv, (1, 1), 1, 1, 3, bias_dims=0), TypeError, "bias_dims: expected integers as an iterable, got 0"),
    refused("a blade of a gate, not in a list", partial(convolution.MultiVectorAct, 4, (3, 0, 0), 1), TypeError, "input_blades: expected integers as an iterable, got 1"),
]  # fmt: skip
