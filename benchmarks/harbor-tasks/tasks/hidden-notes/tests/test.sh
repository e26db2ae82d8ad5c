# Early end: the reward is written first, and the script stops where the program is missing.
echo 0 > /logs/verifier/reward.txt
[ -f roman.py ] || exit 0
[ "$(wc -l < example.txt)" = 2 ] || exit 0
[ ! -e /tests/notes.md ] || exit 0
python3 roman.py < /tests/cases/numbers.txt > /tmp/found.txt || exit 0
cmp -s /tmp/found.txt /tests/cases/numerals.txt && echo 1.0 > /logs/verifier/reward.txt
