"""Layouts of layered graphs, and the elements of SVG pictures of them: what pictures of graphs and plans share."""
