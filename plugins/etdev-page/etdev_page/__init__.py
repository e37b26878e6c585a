"""A page that shows a plan: one HTML file, which needs neither a network nor a server.

graph.py makes a graph of a plan, modules.py a tree of modules of it, and layers.py lays each module
out. page.py writes this with the plan as the JSON that the files in script/ read.
"""
