"""Layouts of layered graphs, and the elements of their SVG pictures, for pictures of graphs and plans."""
