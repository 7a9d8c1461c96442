"""Records, and the tables and files made from them."""
