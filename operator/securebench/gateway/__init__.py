"""The gateway of one run: the only process that a harness Pod can reach.

``python3 -I -m securebench.gateway <folder>`` reads ``config.json`` in the folder and
listens for the sidecars of the run's harness Pods::

    sidecar -> server (preface, admission, limits) -> proxy or provider_route
            -> authority, domains -> dial (one look-up, address rules) -> outside

A sidecar's token says which Pod it is of; nothing that an agent sends has a say in that. Everything
is counted per launch and written down beside the configuration (``launches``), so that the budgets
of a launch survive a restart of the gateway.
"""
