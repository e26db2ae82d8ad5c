"""The gateway of one run: the only process that a harness Pod can reach.

``python3 -I -m securebench.gateway <folder>`` reads ``config.json`` from the folder and
accepts connections from the sidecars of the run's harness Pods::

    sidecar -> server (preface, admission, limits) -> proxy or provider_route
            -> targets -> dial (one look-up, address rules) -> outside

The sidecar's token alone identifies the Pod; nothing that the agent sends can influence that. Usage
is counted per launch and persisted next to the configuration (``launches``), so that the budgets of
a launch survive a restart of the gateway.
"""
