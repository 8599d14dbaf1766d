include:
  - ext.base
extend:
  the name of it:
    test:
      - result: False
