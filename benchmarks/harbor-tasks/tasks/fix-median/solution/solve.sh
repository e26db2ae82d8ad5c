#!/bin/bash
cp "$(dirname "$0")/stats.py" stats.py
