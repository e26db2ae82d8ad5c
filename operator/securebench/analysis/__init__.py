"""What people look at afterwards: reports and comparisons of result folders."""
