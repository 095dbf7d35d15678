def units(*_):
    return []
