# This is an empty python file
