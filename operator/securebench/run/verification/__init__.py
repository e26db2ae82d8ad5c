"""How candidates are judged: one module for each kind of verification.

``base`` has the interface that the rest of the product knows; ``run.plan.kinds`` finds a kind by
its name, also one of another installed package.
"""
