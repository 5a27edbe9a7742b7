"""Writes a network into a file of ONNX, and runs it by onnxruntime beside the module.

The network is CGENN's for volumes of convex hulls. The file has standard operators alone, one for many points and batches of any size,
so whatever reads ONNX runs it, without Python and without flashcliff. Needs `pip install onnx onnxruntime`; runs in some seconds.

    python examples/exported.py
"""

import tempfile
from collections import Counter
from pathlib import Path

import onnx
import onnxruntime
import torch

import flashcliff
from flashcliff.nn.models import Hulls


def main(batches=(1, 16, 300)):
    """Returns the number of nodes, and the largest difference from the module, relative to the largest volume."""
    torch.manual_seed(0)
    net = Hulls()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hulls.onnx"
        flashcliff.export(net, path)
        nodes = Counter(node.op_type for node in onnx.load(path).graph.node)
        print(f"{path.stat().st_size / 1e6:.2f} MB, {nodes.total()} nodes, most of them:")
        print(", ".join(f"{count} {name}" for name, count in nodes.most_common(5)))
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    worst = 0.0
    for batch in batches:
        points = torch.randn(batch, 16, 5)
        (found,) = session.run(None, {"points": points.numpy()})
        with torch.no_grad():
            wanted = net(points)
        error = (torch.from_numpy(found).flatten() - wanted).abs().max() / wanted.abs().max()
        print(f"{batch:4} hulls: difference {error:.0e}")
        worst = max(worst, error.item())
    return nodes.total(), worst


if __name__ == "__main__":
    main()
