"""The page: a plan as one HTML file, which needs neither a network nor a server.

graph.py makes a graph of a plan, modules.py a tree of it, layers.py lays each part of the tree out;
document.py writes all that as the JSON that the files in script/ read, in page.html and page.css.
"""
