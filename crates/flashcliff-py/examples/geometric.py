"""Modules of PyTorch Geometric and of flashcliff in one network, on batches of PyTorch Geometric.

`Messages` is a `MessagePassing` of PyTorch Geometric whose messages are multivectors and whose sums are flashcliff's. It stands beside
`nn.EGCL`, which reads the same `edge_index`, and `SimpleConv` of PyTorch Geometric, which brings charges to their neighbours. The network
learns the field of charges at each of them. It turns with them. Runs in less than a minute, and needs `pip install torch_geometric`.

    python examples/geometric.py
"""

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import MessagePassing, SimpleConv

from flashcliff import Algebra, nn
from flashcliff.graphs.geometric import SegmentAggregation

SPACE = Algebra(3, 0, 0)


class Messages(MessagePassing):
    """Adds to each node the mean of messages of its neighbours. Nodes are multivectors ``[blades, nodes, channels]``."""

    def __init__(self, channels):
        super().__init__(aggr=SegmentAggregation("mean"), node_dim=-2)
        self.edge_model = nn.CEMLP(SPACE, channels, channels, channels, layers=1)

    def forward(self, x, edge_index):
        return x + self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.edge_model(x_i - x_j)


class Field(torch.nn.Module):
    """The field at charges, ``[nodes, 3]``."""

    def __init__(self, channels=8):
        super().__init__()
        self.centre = SegmentAggregation("mean")
        self.around = SimpleConv(aggr=SegmentAggregation("sum"))
        self.embedding = nn.MVLinear(SPACE, 3, channels, per_grade=False)
        self.messages = Messages(channels)
        self.layer = nn.EGCL(SPACE, channels)
        self.projection = nn.MVLinear(SPACE, channels, 1)

    def forward(self, data):
        centred = data.pos - self.centre(data.pos, data.batch)[data.batch]
        charges = torch.cat([data.charge, self.around(data.charge, data.edge_index)], dim=-1)
        vectors = nn.embed_grade(centred.T[..., None], 1, SPACE)
        scalars = nn.embed_grade(charges[None], 0, SPACE)
        x = self.embedding(torch.cat([scalars, vectors], dim=-1))
        x = self.messages(x, data.edge_index)
        x = self.layer(x, data.edge_index)
        return nn.select_grade(self.projection(x), 1, SPACE)[..., 0].T


def charges(count):
    """Some charges at random places with their field, each a neighbour of all others."""
    pos, charge = torch.randn(count, 3), torch.randn(count, 1).sign()
    edge_index = (1 - torch.eye(count)).nonzero().T.contiguous()
    way = pos[:, None] - pos
    field = (charge * way / (1 + way.square().sum(-1, keepdim=True))).sum(1)
    return Data(pos=pos, charge=charge, edge_index=edge_index, y=field)


def turned(data, turn):
    """A batch with turned places."""
    found = data.clone()
    found.pos = data.pos @ turn.T
    return found


def main(steps=200):
    torch.manual_seed(0)
    graphs = [charges(4 + number % 3) for number in range(320)]
    test = next(iter(DataLoader(graphs[:64], batch_size=64)))
    loader = DataLoader(graphs[64:], batch_size=64, shuffle=True)
    model = Field()
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    done = 0
    while done < steps:
        for batch in loader:
            optimiser.zero_grad()
            (model(batch) - batch.y).square().mean().backward()
            optimiser.step()
            done += 1
    with torch.no_grad():
        error = (model(test) - test.y).square().mean().item()
        nothing = test.y.square().mean().item()
        turn = torch.linalg.qr(torch.randn(3, 3))[0]
        off = (model(turned(test, turn)) - model(test) @ turn.T).abs().max().item()
    print(f"the field of new charges: mean squared error {error:.4f}, without a network {nothing:.4f}")
    print(f"a rotation or reflection turns the field, up to {off:.0e}")
    return error, nothing, off


if __name__ == "__main__":
    main()
