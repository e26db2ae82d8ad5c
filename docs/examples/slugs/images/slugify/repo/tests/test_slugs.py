import unittest

from slugs import slug


class SlugTest(unittest.TestCase):
    def test_blanks(self):
        self.assertEqual(slug("Hello  World"), "hello-world")
