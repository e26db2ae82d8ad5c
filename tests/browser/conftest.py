from support.chromium import browser, open_page

__all__ = ["browser", "open_page"]
