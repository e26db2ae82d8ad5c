#!/bin/bash
set -e
printf '#!/bin/sh\necho "Hello, ${1:-world}!"\n' > "$HOME/hello.sh"
chmod +x "$HOME/hello.sh"
