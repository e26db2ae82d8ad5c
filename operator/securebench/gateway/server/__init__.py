"""The gateway's server: admission, launches, decisions and what is written of them."""
