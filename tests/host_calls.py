"""What compiled programs are made of, to see that none of it calls the host."""


def tensorflow_operations(program):
    """Names of all operations in the traced graphs of a program's runs, functions inside of them included."""
    found = set()
    for run in program.runs.values():
        assert run.concrete_functions
        for concrete in run.concrete_functions:
            definition = concrete.graph.as_graph_def()
            found |= {node.op for node in definition.node}
            found |= {node.op for function in definition.library.function for node in function.node_def}
    return found


HOST_CALLS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
