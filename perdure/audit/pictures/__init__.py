"""Pictures: a scene of plain shapes in grey, written as SVG or as PNG without any library."""
