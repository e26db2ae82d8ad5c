#!/bin/bash
sed -i 's/if self.strip_whitespace and data and item:/if self.strip_whitespace and data:/' xmltodict.py
