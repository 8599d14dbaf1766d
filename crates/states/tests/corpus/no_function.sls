one:
  test:
    - name: x
