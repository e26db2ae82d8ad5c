#!/usr/bin/no-such-program
