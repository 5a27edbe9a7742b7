"""Networks as standard operations: each kind of node of a network's graph, written with :class:`..operations.Operations`.

- ``network``: the walk over the nodes.
- ``layout``: tokens and rows: multivectors ``[blades, rows, channels]`` beside scalars ``[rows, scalars]``.
- ``program``, ``stages``, ``elementwise``: programs of lanes, as few operations on all components or as one for each expression.
- ``linear``, ``attention``, ``steps``: the steps of transformers.
- ``operators``: operators of the table, which networks of multivectors call.
- ``nodes``: all other nodes.
"""
