import os

#print('Hello world')

