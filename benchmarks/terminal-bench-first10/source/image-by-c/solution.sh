#!/bin/bash
cat > image.c <<'EOF'
#include <stdio.h>
int main(void) {
  puts("P3\n48 32\n255");
  for (int y = 0; y < 32; y++)
    for (int x = 0; x < 48; x++) {
      int d = (x - 20) * (x - 20) + (y - 16) * (y - 16);
      int g = (x / 6 + y / 4) % 2 ? 90 : 160;
      if (d <= 100)
        printf("%d %d %d\n", 200 - d, 40 + 2 * x, 30 + 3 * y);
      else if (y >= 24)
        printf("%d %d %d\n", g, g, g);
      else
        printf("%d %d %d\n", 20 + y * 4, 60 + y * 3, 120 + y * 2);
    }
  return 0;
}
EOF
