const unused = 1;
