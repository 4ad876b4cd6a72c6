"""Line loops: for every line of a grid, right-hand side, constant tridiagonal solve and what comes before and after."""
