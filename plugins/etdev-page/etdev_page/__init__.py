"""A page that shows a plan: one HTML file, which needs neither a network nor a server.

graph.py makes a graph of a plan, modules.py a tree of modules of it, and layers.py lays each module
out. document.py writes this as the JSON that the files in script/ read, in page.html and page.css.
"""
