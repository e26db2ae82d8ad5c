"""What runs inside verifier Pods of code_completion (contract 14.4).

The candidate's module lives in the *worker*, the tests in the *runner*; each has a container of
its own and only data crosses the socket between them. This package is copied into containers of
task images and runs there with whatever Python 3.8 or later they have: standard library only,
imports relative.
"""
