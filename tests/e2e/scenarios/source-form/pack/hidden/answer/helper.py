WANT = "42\n"
