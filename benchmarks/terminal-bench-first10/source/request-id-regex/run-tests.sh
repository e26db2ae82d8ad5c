#!/bin/bash
# TEST_DIR holds the tests.
pip install pytest==8.3.5
pytest "$TEST_DIR" -rA
