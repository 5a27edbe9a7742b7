"""The implementation of :mod:`flashcliff.jax`.

- ``which``: operators and their derivatives by content.
- ``network``: networks of files, and their gradients, by content.
- ``sequences``: the sequences of ragged batches of networks.
- ``primitives``: three primitives of JAX, their shapes, and their derivatives.
- ``batches``: their batches.
- ``lowering``: their calls of the compiled half, within programs of XLA.
- ``call``, ``own``: calls of operators of the table, and of custom operators.

**An operator is content.** A call within a compiled program says what it computes by a text: the operator, as files of networks
have it, and the steps to a derivative. So programs may be stored, and run in other processes.

**Derivatives are operators** (:meth:`_core.Operator.gradient`, :meth:`_core.Operator.tangent`), and so every order is there by
three primitives, each of which has derivatives that are calls of the three:

==================  =====================================  ==========================  =====================
primitive           computes                               tangent                     transpose
==================  =====================================  ==========================  =====================
``operator``        the outputs, and what is saved         ``tangent``                 of linear ones: ``backward``
``tangent``         the tangents of the outputs            ``tangent`` of the tangent  ``backward``, or ``operator`` of the gradient
``backward``        gradients, from what was saved         ``tangent`` of the gradient ``tangent``
==================  =====================================  ==========================  =====================

A gradient by ``jax.grad`` is so the backward pass of the operator, as in PyTorch, with the same bits: the tangent of which it is
the transpose is never computed.

**A network is one more operator**, with a backward pass for the arguments that move. Further gradients are networks. Its tangent is a
gradient of a gradient, in the order of differentiation that takes the fewest steps.

**What is saved has a batch axis**, ``[sums, batch]``, and so follows batches, conditions and loops of JAX as any array does. What a network
keeps is bytes of one call, and a batch of networks is a loop of calls.
"""
