"""The warm pool of a host: machines that are ready before anybody asks for them."""
