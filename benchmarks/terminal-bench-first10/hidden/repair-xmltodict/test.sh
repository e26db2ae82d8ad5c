#!/bin/bash
pip install pytest==8.3.5
if pytest /opt/securebench/evaluator/repair-xmltodict/test_outputs.py -rA; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
