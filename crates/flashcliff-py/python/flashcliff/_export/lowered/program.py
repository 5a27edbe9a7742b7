"""Programs of lanes as expressions, from the two places that have them: files, and operators of the table."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from ... import _core

__all__ = ["Expression", "Program", "of_operator", "of_record"]


class Expression(NamedTuple):
    """An expression: its kind, its operands by number, and what else it is of.

    ========================================================== ======================= ==============================
    kind                                                       operands                of
    ========================================================== ======================= ==============================
    ``constant``                                               none                    the number
    ``lane``                                                   none                    the input and its component
    ``parameter``                                              none                    the parameter and its element
    ``row``                                                    none                    the number of the row value
    ``channels``, ``scalars``                                  none                    none: numbers of channels
    ``sum``                                                    the summand             none
    ``add``, ``sub``, ``mul``, ``div``, ``max``, ``greater``   two                     none
    ``neg``                                                    one                     none
    ``call``                                                   one                     the name of a function
    ========================================================== ======================= ==============================
    """

    kind: str
    operands: tuple[int, ...] = ()
    of: Any = None


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        name: its name.
        expressions: the expressions, operands before users.
        inputs: for each input its name, its components, and whether it is of scalar channels.
        parameters: for each parameter its name, the numbers of a channel, and whether it is of scalar channels.
        outputs: for each output its expressions, and whether it is of scalar channels.
        rows: the names of numbers of rows.
        arguments: the tensors of a call in their order: ``input``, ``parameter`` or ``row_value``.
    """

    name: str
    expressions: tuple[Expression, ...]
    inputs: tuple[tuple[str, int, bool], ...]
    parameters: tuple[tuple[str, int, bool], ...]
    outputs: tuple[tuple[tuple[int, ...], bool], ...]
    rows: tuple[str, ...]
    arguments: tuple[str, ...]


_PAIRS = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "max": "max"}
_GATES = {
    "gelu": "gelu_gate",
    "gelu_tanh": "tanh_gate",
    "gelu_fast": "fast_gate",
    "silu": "sigmoid",
}


def refused(name: str, what: str) -> _core.UnsupportedError:
    return _core.UnsupportedError(
        f"export: expected nodes that standard operations can compute, got {what} in the program `{name}`"
    )


def _gate(name: str, gate: str, order: int, operand: int) -> Expression:
    """A call of the gate of a program."""
    if gate == "none":
        return Expression("constant", of=0.0 if order else 1.0)
    if order or gate not in _GATES:
        raise refused(name, f"a derivative of order {order} of the gate `{gate}`")
    return Expression("call", (operand,), _GATES[gate])


def of_record(record: dict[str, Any]) -> Program:
    """The program of a file."""
    name = record["name"]

    def is_scalar(own: dict[str, Any]) -> bool:
        return bool(own["width"] == "scalars")

    def expression(own: dict[str, Any]) -> Expression:
        ((kind, of),) = own.items()
        match kind:
            case "constant":
                (number,) = struct.unpack(">d", bytes.fromhex(of))
                return Expression("constant", of=number)
            case "lane" | "parameter":
                return Expression(kind, of=tuple(of))
            case "row_value":
                return Expression("row", of=of)
            case "row_sum":
                return Expression("sum", (record["row_sums"][of],))
            case "cut":
                return Expression("same", (record["cuts"][of[0]][of[1]],))
            case "uniform":
                return _uniform(of, record["eps"])
            case "neg":
                return Expression("neg", (of,))
            case "call":
                function, operand = of
                if isinstance(function, dict):
                    return _gate(name, record["gate"], function["gate"], operand)
                if function == "sigmoid_slope":
                    raise refused(name, "the slope of a sigmoid")
                return Expression("call", (operand,), function)
            case "damp":
                # A closed gate lets nothing through: the product of 0 and an infinite number is NaN here.
                return Expression("mul", tuple(of))
            case "hypot" | "greater":
                return Expression(kind, tuple(of))
        return Expression(_PAIRS[kind], tuple(of))

    outputs = []
    for result in record["results"]:
        if "output" not in result:
            raise refused(name, "a sum over rows")
        own = result["output"]
        outputs.append((tuple(own["values"]), is_scalar(own)))
    return Program(
        name,
        tuple(map(expression, record["expressions"])),
        tuple((own["name"], len(own["components"]), is_scalar(own)) for own in record["inputs"]),
        tuple((own["name"], own["count"], is_scalar(own)) for own in record["parameters"]),
        tuple(outputs),
        tuple(record.get("row_values", ())),
        tuple(kind for own in record["arguments"] for kind in own),
    )


def _uniform(of: Any, eps: float) -> Expression:
    if of == "eps":
        return Expression("constant", of=eps)
    if of == "inv_channels":
        return Expression("inverse")
    return Expression(of["count"])


_NAMED = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "damp": "mul",
    "div": "div",
    "max": "max",
    "greater": "greater",
    "hypot": "hypot",
    "neg": "neg",
    "same": "same",
    "sum": "sum",
    "inverse of channels": "inverse",
    "channels": "channels",
    "scalar channels": "scalars",
}


def of_operator(operator: _core.Operator, settings: dict[str, Any]) -> Program | None:
    """The program of an operator of the table; ``None`` if it is not a program. All of its tensors have one number of channels."""
    found = operator.expressions()
    if found is None:
        return None
    nodes, output = found
    name = operator.name
    axes = dict(operator.inputs)
    lanes = [(own, int(axis[0]), False) for own, axis in axes.items() if len(axis) == 3]
    parameters = [(own, int(axis[1]), False) for own, axis in axes.items() if len(axis) == 2]
    lane_of = {own[0]: at for at, own in enumerate(lanes)}
    parameter_of = {own[0]: at for at, own in enumerate(parameters)}

    def expression(node: tuple[str, list[int], str, float]) -> Expression:
        kind, operands, argument, number = node
        match kind:
            case "constant":
                return Expression("constant", of=number)
            case "eps":
                return Expression("constant", of=float(settings["eps"]))
            case "lane":
                return Expression("lane", of=(lane_of[argument], int(number)))
            case "param":
                own = "weight" if argument == "w" else argument
                return Expression("parameter", of=(parameter_of[own], int(number)))
            case "gate":
                return _gate(name, settings.get("gate", "none"), 0, operands[0])
            case "sqrt" | "sin" | "cos" | "exp" | "sigmoid":
                return Expression("call", tuple(operands), kind)
        if kind not in _NAMED:
            raise refused(name, f"`{kind}`")
        return Expression(_NAMED[kind], tuple(operands))

    return Program(
        name,
        tuple(map(expression, nodes)),
        tuple(lanes),
        tuple(parameters),
        ((tuple(output), False),),
        (),
        tuple("input" if own in lane_of else "parameter" for own in axes),
    )
